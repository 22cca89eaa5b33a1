"""A few bits per value: levels of each bucket's norm, rounded at random."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.codec.value.chunks import check_chunk, join, take_apart
from thinwire.errors import WireFormatError
from thinwire.kernels.chunk_codes import Norm, from_levels, to_levels
from thinwire.kernels.chunk_codes.chunks import LARGEST, each_value, in_chunks
from thinwire.kernels.chunk_codes.reference import norms_of
from thinwire.kernels.pack_bits import MOST_BITS, check_packed, pack_bits
from thinwire.settings import check_choice, check_integer
from thinwire.types import ValueCodec

_NORMS: tuple[Norm, ...] = ("l2", "max")


@dataclass(frozen=True, slots=True)
class QsgdValue(ValueCodec):
    """QSGD (Alistarh et al., NeurIPS 2017): sign(x)·norm·level/s, with s = 2^(bits-1) - 1 levels.

    |x|·s/norm is rounded up or down at random so that the mean is right: unbiased, to 2^-24 of a
    level, the grain of the random numbers. |error| < norm/s for each value; for the l2 norm
    E‖Q(x) - x‖² ≤ min(d/s², √d/s)·‖x‖² in each bucket of d (lemma 3.1).

    DeepReduce configures 7 bits and buckets of 512 (section 6.3). `bits` counts the sign here: at
    `bits=7` its table 2 comes out at the volume that it prints. `norm="max"` wastes no level, as
    the authors' own code does by default.

    Deviations from the paper: a fixed number of bits instead of Elias coding, which pays only for
    few levels; and norms are rounded up to float32, so that no value exceeds its norm. float64
    values beyond the range of float32 saturate, and the rest is the residual's.

    Part: bits, norm (0 l2, 1 max), two zero bytes, bucket as u32; a float32 norm for each bucket;
    then a code for each value: sign·level + s.
    """

    id = 6
    name = "qsgd"
    unbiased: ClassVar[bool] = True

    bits: int = 8
    bucket: int = 512
    norm: Norm = "l2"

    def __post_init__(self) -> None:
        check_integer("bits", self.bits, 2, MOST_BITS)
        check_chunk("bucket", self.bucket)
        check_choice("norm", self.norm, _NORMS)

    @property
    def levels(self) -> int:
        """Levels above zero."""
        return _levels(self.bits)

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """The settings, the norms and the codes."""
        norms, codes = to_levels(values, self.bucket, self.norm, self.levels, seed)
        body = pack_bits(codes, self.bits)
        return join(self.bits, _NORMS.index(self.norm), self.bucket, norms, body)

    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """Levels of the norms."""
        opened = take_apart(part, count)
        bits = opened.first
        if not 2 <= bits <= MOST_BITS or opened.second >= len(_NORMS):
            raise WireFormatError(f"no such settings: bits {bits}, norm {opened.second}")
        check_packed(opened.body, count, bits)
        values, sound = from_levels(opened.body, opened.scales, count, opened.chunk, bits, dtype)
        if not bool(sound):
            raise WireFormatError(
                f"codes must not be above {2 * _levels(bits)}, and norms not negative"
            )
        return values

    def error_bound(self, values: Tensor) -> Tensor:
        """One level, the rounding of the values' dtype, and what saturates."""
        buckets = in_chunks(values, self.bucket)
        norms = norms_of(buckets, self.norm).double()
        norms = each_value(norms, buckets.shape[1], values.numel())
        size = values.abs().double()
        form = torch.finfo(values.dtype)
        rounding = 4 * form.eps * size + form.tiny * form.eps
        excess = (size - LARGEST).clamp(min=0)
        return norms / self.levels + rounding + excess


def _levels(bits: int) -> int:
    return (1 << (bits - 1)) - 1
