"""A few bits per value: an even grid from -scale to +scale, one scale for each chunk."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from thinwire.codec.value.chunks import check_chunk, join, take_apart
from thinwire.errors import WireFormatError
from thinwire.kernels.chunk_codes import from_points, to_points
from thinwire.kernels.chunk_codes.chunks import each_value, in_chunks
from thinwire.kernels.chunk_codes.reference import points_of
from thinwire.kernels.pack_bits import check_packed, pack_bits
from thinwire.settings import check_choice
from thinwire.types import ValueCodec

Rounding = Literal["nearest", "stochastic"]
ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)
WIDTHS = (2, 8)


@dataclass(frozen=True, slots=True)
class ChunkedValue(ValueCodec):
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

    id = 10
    name = "chunked"

    bits: int = 8
    chunk: int = 512
    rounding: Rounding = "nearest"

    def __post_init__(self) -> None:
        check_choice("bits", self.bits, WIDTHS)
        check_chunk("chunk", self.chunk)
        check_choice("rounding", self.rounding, ROUNDINGS)

    @property
    def unbiased(self) -> bool:
        """If it rounds at random."""
        return self.rounding == "stochastic"

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """The settings, the scales and the codes."""
        scales, codes = to_points(values, self.chunk, self.bits, seed if self.unbiased else None)
        return join(self.bits, 0, self.chunk, scales, pack_bits(codes, self.bits))

    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """Points of the grids."""
        opened = take_apart(part, count)
        bits = opened.first
        if bits not in WIDTHS or opened.second:
            raise WireFormatError(f"no such settings: bits {bits}, {opened.second}")
        check_packed(opened.body, count, bits)
        values, sound = from_points(opened.body, opened.scales, count, opened.chunk, bits, dtype)
        if not bool(sound):
            raise WireFormatError("scales must not be negative")
        return values

    def error_bound(self, values: Tensor) -> Tensor:
        """A step, or half of one; the rounding of the values' dtype, and what saturates."""
        rows = in_chunks(values, self.chunk)
        chunk, count = rows.shape[1], values.numel()
        reach, sent, _ = points_of(rows, count, self.bits, 0 if self.unbiased else None)
        reach, sent = (each_value(scales.double(), chunk, count) for scales in (reach, sent))
        form = torch.finfo(values.dtype)
        rounding = 4 * form.eps * torch.maximum(reach, sent) + form.tiny * form.eps
        steps = 2 if self.unbiased else 1
        beyond = values.abs().double() - reach
        return (
            torch.maximum(reach * steps / _top(self.bits), beyond) + (sent - reach).abs() + rounding
        )


def _top(bits: int) -> int:
    """The highest code."""
    return (1 << bits) - 1
