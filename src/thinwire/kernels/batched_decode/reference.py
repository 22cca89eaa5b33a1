"""Batched decoding in torch: 0 + part_0 + part_1 + …, each where it has an index, in this order."""

from collections.abc import Sequence

import torch
from torch import Tensor

from thinwire.types import Sparse, accumulator


def decode_sum(parts: Sequence[Sparse], out: Tensor, scale: float | Tensor) -> Tensor:
    total = torch.zeros_like(out, dtype=accumulator(out.dtype))
    for part in parts:
        inside = part.indices < part.numel
        indices, values = part.indices[inside], part.values[inside]
        Sparse(indices, values.to(total.dtype), part.numel).add_to(total)
    return out.copy_(total.mul_(scale))


def add_row(indices: Tensor, values: Tensor, total: Tensor, scale: float) -> None:
    inside = (indices >= 0) & (indices < total.numel())
    shares = values[inside].to(total.dtype) * scale
    Sparse(indices[inside], shares, total.numel()).add_to(total)
