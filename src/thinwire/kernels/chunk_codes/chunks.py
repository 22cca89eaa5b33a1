"""The arithmetic of chunks in torch: one chunk a row."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from thinwire.kernels._numeric import saturate

Norm = Literal["l2", "max"]
LARGEST = torch.finfo(torch.float32).max


def in_chunks(values: Tensor, chunk: int) -> Tensor:
    """One chunk a row, the last filled up with zeros; finite values beyond float32 saturate."""
    chunk = min(chunk, max(1, values.numel()))
    fitted = saturate(values, LARGEST) if values.dtype == torch.float64 else values
    return pad(fitted, (0, -values.numel() % chunk)).view(-1, chunk)


def largest_magnitudes(rows: Tensor) -> Tensor:
    """The scale of each chunk, rounded up to float32 so that no value exceeds it."""
    if not rows.numel():
        return rows.new_zeros(0, dtype=torch.float32)
    return rounded_up(rows.abs().amax(1).double())


def rounded_up(exact: Tensor) -> Tensor:
    """The least float32 that is not below each float64; what is beyond float32 saturates."""
    exact = saturate(exact, LARGEST)
    near = exact.float()
    above = torch.nextafter(near, torch.full_like(near, float("inf")))
    return torch.where(near < exact, above, near)


def shares(rows: Tensor, scales: Tensor) -> Tensor:
    """Each value over its chunk's scale, within ±1; 0 where the scale is zero or not finite.

    Where a scale is NaN or Inf any share will do: what is decoded is not finite.
    """
    by = torch.where(scales == 0, 1, scales).to(rows.dtype)[:, None]
    return (rows / by).nan_to_num_(0)


def each_value(scales: Tensor, chunk: int, count: int) -> Tensor:
    """The scale of each of `count` values."""
    return scales.repeat_interleave(chunk, output_size=scales.numel() * chunk)[:count]
