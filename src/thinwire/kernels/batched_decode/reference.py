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


def add_rows(indices: Tensor, values: Tensor, total: Tensor, scale: float) -> Tensor:
    for row, own in zip(indices, values, strict=True):
        inside = (row >= 0) & (row < total.numel())
        shares = own[inside].to(total.dtype) * scale
        Sparse(row[inside], shares, total.numel()).add_to(total)
    return values[:, :1].isnan().any().to(torch.int64)
