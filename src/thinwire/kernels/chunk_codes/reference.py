"""Codes of chunks in torch."""

import torch
from torch import Tensor

from thinwire.kernels._numeric import row_sums
from thinwire.kernels.chunk_codes.chunks import (
    Norm,
    each_value,
    in_chunks,
    largest_magnitudes,
    rounded_up,
    shares,
)
from thinwire.kernels.pack_bits import unpack_bits
from thinwire.kernels.quantise import quantise


def norms_of(rows: Tensor, norm: Norm) -> Tensor:
    """Each chunk's norm, rounded up to float32."""
    if norm == "max" or not rows.numel():
        return largest_magnitudes(rows)
    return rounded_up(row_sums(rows.double().square()).sqrt_())


def to_levels(
    values: Tensor, chunk: int, norm: Norm, levels: int, seed: int
) -> tuple[Tensor, Tensor]:
    rows = in_chunks(values, chunk)
    norms = norms_of(rows, norm)
    heights = shares(rows, norms).view(-1)[: values.numel()]
    steps = quantise(heights.abs().mul_(levels), seed)
    return norms, torch.where(values < 0, -steps, steps).add_(levels)


def to_points(values: Tensor, chunk: int, bits: int, seed: int | None) -> tuple[Tensor, Tensor]:
    rows = in_chunks(values, chunk)
    _, sent, codes = points_of(rows, values.numel(), bits, seed)
    return sent, codes.view(-1)[: values.numel()]


def points_of(
    rows: Tensor, count: int, bits: int, seed: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Where each chunk's grid ends while points are chosen; the scale that is sent; the points.

    The points are any for what fills up the last row.
    """
    fits = bits == 2 and seed is None
    reach = _reach(rows, count) if fits else largest_magnitudes(rows)
    half = ((1 << bits) - 1) / 2
    heights = shares(rows, reach).clamp_(-1, 1).mul_(half).add_(half)
    if seed is None:
        codes = heights.add_(0.5).int()
    else:
        codes = quantise(heights.view(-1), seed).view_as(rows)
    return reach, _best_scales(rows, codes, reach, count) if fits else reach, codes


def from_codes(
    packed: Tensor,
    scales: Tensor,
    count: int,
    chunk: int,
    bits: int,
    dtype: torch.dtype,
    levels: bool,
) -> tuple[Tensor, Tensor]:
    codes = unpack_bits(packed, count, bits)
    sound = ~(scales < 0).any()
    if levels:
        top = (1 << (bits - 1)) - 1
        sound &= (codes <= 2 * top).all()
        # A tensor, since by a plain number CUDA divides with another rounding than the CPU.
        points = (codes - top).to(dtype).div_(torch.full((), top, dtype=dtype, device=codes.device))
    else:
        points = _grid(bits, codes.device).to(dtype).index_select(0, codes)
    return points.mul_(each_value(scales, chunk, count)), sound


def _reach(rows: Tensor, count: int) -> Tensor:
    """1.5 times the root mean square, but not above the largest magnitude, in float32."""
    largest = largest_magnitudes(rows)
    if not count:
        return largest
    members = torch.full_like(largest, rows.shape[1], dtype=torch.float64)
    members[-1:].fill_(count - (rows.shape[0] - 1) * rows.shape[1])
    mean_square = row_sums(rows.double().square()) / members
    return torch.minimum(largest, rounded_up(1.5 * mean_square.sqrt_()))


def _best_scales(rows: Tensor, codes: Tensor, reach: Tensor, count: int) -> Tensor:
    """The scales that bring the points closest to the `count` values, by least squares.

    Not above the largest magnitude, or they might overflow; with less than the best, too, the
    points are closer than zero is.
    """
    points = _grid(2, rows.device).index_select(0, codes.view(-1))
    points[count:] = 0
    points = points.view_as(codes)
    along = row_sums(points * rows.double())
    best = along / row_sums(points.square())
    best = torch.where(best > 0, best, 0).float()  # neither NaN nor -0
    return torch.where(reach.isfinite(), torch.minimum(best, largest_magnitudes(rows)), reach)


def _grid(bits: int, device: torch.device) -> Tensor:
    """The points, made on the host: by a plain number CUDA divides with another rounding."""
    top = (1 << bits) - 1
    grid = torch.arange(-top, top + 1, 2, dtype=torch.float64) / top
    return grid.to(device, non_blocking=True)
