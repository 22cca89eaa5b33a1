"""Threshold compaction in torch."""

import torch
from torch import Tensor

from thinwire.kernels.addend import Addend
from thinwire.kernels.compact.found import Found


def passing(x: Tensor, threshold: Tensor) -> Tensor:
    """Ascending indices of the non-zero elements with |x| ≥ `threshold`."""
    return ((x.abs() >= threshold) & (x != 0)).nonzero().flatten()


def compact(x: Tensor, threshold: Tensor, capacity: int, addend: Addend | None = None) -> Found:
    if addend:
        addend.add_to(x)
    everything = passing(x, threshold)
    listed = everything[:capacity]
    indices = torch.full((capacity,), -1, dtype=torch.int64, device=x.device)
    values = x.new_zeros(capacity)
    indices[: listed.numel()] = listed
    values[: listed.numel()] = x[listed]
    return Found(indices, values, torch.tensor(everything.numel(), device=x.device))
