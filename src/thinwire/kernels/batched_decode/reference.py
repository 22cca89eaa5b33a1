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


def decode_sum_rows(indices: Tensor, values: Tensor, out: Tensor, scale: float | Tensor) -> Tensor:
    return decode_sum(split(indices, values, out), out, scale)


def split(indices: Tensor, values: Tensor, out: Tensor) -> list[Sparse]:
    """The rows as parts."""
    return [Sparse(*row, out.numel()) for row in zip(indices, values, strict=True)]
