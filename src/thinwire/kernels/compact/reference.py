"""Threshold compaction in torch."""

import torch
from torch import Tensor

from thinwire.kernels.compact.found import Found


def passing(x: Tensor, threshold: Tensor) -> Tensor:
    """Ascending indices of the non-zero elements with |x| ≥ `threshold`."""
    return ((x.abs() >= threshold) & (x != 0)).nonzero().flatten()


def compact(x: Tensor, threshold: Tensor, capacity: int) -> Found:
    """See the package."""
    everything = passing(x, threshold)
    listed = everything[:capacity]
    indices = torch.full((capacity,), -1, dtype=torch.int64, device=x.device)
    values = x.new_zeros(capacity)
    indices[: listed.numel()] = listed
    values[: listed.numel()] = x[listed]
    return Found(indices, values, torch.tensor(everything.numel(), device=x.device))


def accumulate(
    residual: Tensor, grad: Tensor, threshold: Tensor, capacity: int, clear: bool
) -> Found:
    """See the package."""
    residual.add_(grad)
    if clear:
        grad.zero_()
    return compact(residual, threshold, capacity)


def accumulate_momentum(
    velocity: Tensor,
    residual: Tensor,
    grad: Tensor,
    factor: float,
    threshold: Tensor,
    capacity: int,
    clear: bool,
) -> Found:
    """See the package."""
    velocity.mul_(factor).add_(grad)
    if clear:
        grad.zero_()
    return compact(residual.add_(velocity), threshold, capacity)
