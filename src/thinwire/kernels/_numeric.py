"""Arithmetic that comes out the same on every device and every number of threads."""

import torch
from torch import Tensor


def row_sums(x: Tensor) -> Tensor:
    """The sum of each row of a 2-D tensor, which is overwritten.

    Halves are added to halves: a fixed order, where `torch.sum` takes one that depends on the
    device and the number of threads; and an error that grows with the logarithm of the length.
    """
    while x.shape[1] > 1:
        half = (x.shape[1] + 1) // 2
        x[:, : x.shape[1] - half] += x[:, half:]
        x = x[:, :half]
    return x.sum(1)  # of one column or none: a copy of its own, whose bytes lie side by side


def saturate(x: Tensor, limit: float) -> Tensor:
    """Finite values clamped to ±limit. NaN and ±Inf pass: a real overflow must stay visible."""
    return torch.where(x.isinf(), x, x.clamp(-limit, limit))
