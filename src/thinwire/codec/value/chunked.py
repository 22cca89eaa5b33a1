"""A few bits a value: an even grid from -scale to +scale, one scale for each chunk."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from thinwire.codec.parts import expect_bytes
from thinwire.codec.value.chunks import (
    check_chunk,
    each_value,
    in_chunks,
    join,
    largest_magnitudes,
    rounded_up,
    shares,
    take_apart,
)
from thinwire.codec.value.numeric import row_sums
from thinwire.errors import RecipeError, WireFormatError
from thinwire.kernels.pack_bits import pack_bits, packed_bytes, unpack_bits
from thinwire.kernels.quantise import quantise

Rounding = Literal["nearest", "stochastic"]
ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)
WIDTHS = (2, 8)


@dataclass(frozen=True, slots=True)
class ChunkedValue:
    """The quantisers of SparseLoCo (2 bits) and bitsandbytes (8 bits, by blocks), on even grids.

    The 2^bits points (2j - top)/top, top = 2^bits - 1, times the scale of the chunk: its largest
    magnitude. |error| ≤ scale/top with `rounding="nearest"`; twice that with `"stochastic"`, which
    is unbiased (to 2^-24 of a step, and the rounding of the values' dtype).

    Two bits rounded to nearest take another scale: with the largest magnitude, most values of a
    chunk would come back too large, and the error could be larger than the values. Points are
    chosen for a scale of 1.5 times the root mean square, nearly the best for normal values (Max,
    1960), and then the scale that fits these points best is sent: ‖x - Q(x)‖ < ‖x‖ whatever the
    values are, as error feedback needs it. Values beyond the last point saturate.

    Zero is not on the grid, in contrast to `qsgd`: values that were selected are not zero, and of
    2 bits a quarter would be lost. A zero comes back as one of its two neighbours.

    Deviations: no statistics of the whole part and no table of levels, so that chunks are
    independent of each other; float64 values beyond the range of float32 saturate.

    Part: see `chunks`, with bits and a zero byte; the body is j for each value. How it was rounded
    is the sender's own affair.
    """

    id: ClassVar[int] = 10
    name: ClassVar[str] = "chunked"
    lossless: ClassVar[bool] = False

    bits: int = 8
    chunk: int = 512
    rounding: Rounding = "nearest"

    def __post_init__(self) -> None:
        if self.bits not in WIDTHS:
            raise RecipeError(f"bits={self.bits} must be one of {WIDTHS}")
        check_chunk("chunk", self.chunk)
        if self.rounding not in ROUNDINGS:
            raise RecipeError(f"rounding={self.rounding!r} must be one of {ROUNDINGS}")

    @property
    def unbiased(self) -> bool:
        """If it rounds at random."""
        return self.rounding == "stochastic"

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """The settings, the scales and the codes."""
        rows = in_chunks(values, self.chunk)
        scales = self._reach(rows, values.numel())
        codes = self._codes(rows, scales, seed)
        if self._fits:
            scales = _best_scales(rows, codes, scales, values.numel())
        body = pack_bits(codes.view(-1)[: values.numel()], self.bits)
        return join(self.bits, 0, self.chunk, scales, body)

    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """Points of the grids."""
        opened = take_apart(part, count)
        bits = opened.first
        if bits not in WIDTHS or opened.second:
            raise WireFormatError(f"no such settings: bits {bits}, {opened.second}")
        expect_bytes(opened.body, packed_bytes(count, bits), f"{count} codes of {bits} bits")
        codes = unpack_bits(opened.body, count, bits)
        points = _grid(bits, part.device).to(dtype).index_select(0, codes)
        return points.mul_(each_value(opened.scales, opened.chunk, count))

    def error_bound(self, values: Tensor) -> Tensor:
        """A step, or half of one; the rounding of the values' dtype, and what saturates."""
        rows = in_chunks(values, self.chunk)
        chunk, count = rows.shape[1], values.numel()
        reach = sent = self._reach(rows, count)
        if self._fits:
            sent = _best_scales(rows, self._codes(rows, reach, 0), reach, count)
        reach, sent = (each_value(scales.double(), chunk, count) for scales in (reach, sent))
        form = torch.finfo(values.dtype)
        rounding = 4 * form.eps * torch.maximum(reach, sent) + form.tiny * form.eps
        steps = 2 if self.unbiased else 1
        beyond = values.abs().double() - reach
        return (
            torch.maximum(reach * steps / _top(self.bits), beyond) + (sent - reach).abs() + rounding
        )

    @property
    def _fits(self) -> bool:
        """Whether the scale follows from the points."""
        return self.bits == 2 and not self.unbiased

    def _reach(self, rows: Tensor, count: int) -> Tensor:
        """Where each chunk's grid ends while points are chosen, in float32."""
        largest = largest_magnitudes(rows)
        if not self._fits or not count:
            return largest
        members = torch.full_like(largest, rows.shape[1], dtype=torch.float64)
        members[-1] = count - (rows.shape[0] - 1) * rows.shape[1]
        mean_square = row_sums(rows.double().square()) / members
        return torch.minimum(largest, rounded_up(1.5 * mean_square.sqrt_()))

    def _codes(self, rows: Tensor, reach: Tensor, seed: int) -> Tensor:
        """The point of each value, row by row; any for those that fill up the last row."""
        half = _top(self.bits) / 2
        heights = shares(rows, reach).clamp_(-1, 1).mul_(half).add_(half)
        if self.unbiased:
            return quantise(heights.view(-1), seed).view_as(rows)
        return heights.add_(0.5).int()


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
    best = torch.minimum(best.nan_to_num_(0).float(), largest_magnitudes(rows))
    return torch.where(reach.isfinite(), best, reach)


def _top(bits: int) -> int:
    """The highest code."""
    return (1 << bits) - 1


def _grid(bits: int, device: torch.device) -> Tensor:
    """The points, made on the host: by a plain number CUDA divides with another rounding."""
    top = _top(bits)
    grid = torch.arange(-top, top + 1, 2, dtype=torch.float64) / top
    return grid.to(device, non_blocking=True)
