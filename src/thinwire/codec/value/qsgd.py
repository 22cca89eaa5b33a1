"""A few bits a value: levels of each bucket's norm, rounded at random."""

import struct
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.codec.value.numeric import row_sums, saturate
from thinwire.errors import RecipeError, WireFormatError
from thinwire.kernels.pack_bits import MOST_BITS, pack_bits, packed_bytes, unpack_bits
from thinwire.rng import hash_to_unit

_SETTINGS = struct.Struct("<BBHI")  # bits, norm, zero, bucket
_NORMS = ("l2", "max")
_LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True, slots=True)
class QsgdValue:
    """QSGD (Alistarh et al., NeurIPS 2017): sign(x)·norm·level/s, with s = 2^(bits-1) - 1 levels.

    |x|·s/norm is rounded up or down at random so that the mean is right: unbiased, to 2^-24 of a
    level, the grain of the random numbers. |error| < norm/s for each value; for the l2 norm
    E‖Q(x) - x‖² ≤ min(d/s², √d/s)·‖x‖² in each bucket of d (lemma 3.1).

    DeepReduce sends 7 bits a level and a sign, in buckets of 512: `bits=8` here, which counts the
    sign. `norm="max"` wastes no level, as the authors' own code does by default.

    Deviations from the paper: a fixed number of bits instead of Elias coding, which pays only for
    few levels; and norms are rounded up to float32, so that no value exceeds its norm. float64
    values beyond the range of float32 saturate, and the rest is the residual's.

    Part: bits, norm (0 l2, 1 max), two zero bytes, bucket as u32; a float32 norm for each bucket;
    then a code for each value: sign·level + s.
    """

    id: ClassVar[int] = 6
    name: ClassVar[str] = "qsgd"
    lossless: ClassVar[bool] = False
    unbiased: ClassVar[bool] = True

    bits: int = 8
    bucket: int = 512
    norm: Literal["l2", "max"] = "l2"

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= MOST_BITS:
            raise RecipeError(f"bits={self.bits} must be in 2 … {MOST_BITS}")
        if not 1 <= self.bucket < 2**32:
            raise RecipeError(f"bucket={self.bucket} must be in 1 … 2^32 - 1")
        if self.norm not in _NORMS:
            raise RecipeError(f"norm={self.norm!r} must be one of {_NORMS}")

    @property
    def levels(self) -> int:
        """Levels above zero."""
        return _levels(self.bits)

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """The settings, the norms and the codes."""
        buckets = self._buckets(values)
        norms = self._norms(buckets)
        height = buckets.abs() / torch.where(norms == 0, 1, norms).to(values.dtype)[:, None]
        # Where the norm is NaN or Inf any level will do: what is decoded is not finite.
        height = height.nan_to_num_(0).mul_(self.levels)
        floor = height.floor()
        positions = torch.arange(buckets.numel(), device=values.device)
        up = hash_to_unit(positions, seed).view_as(height) < height - floor
        codes = (floor + up).copysign_(buckets).add_(self.levels).int()
        settings = _SETTINGS.pack(self.bits, _NORMS.index(self.norm), 0, self.bucket)
        head = torch.frombuffer(bytearray(settings), dtype=torch.uint8)
        return torch.cat(
            (
                head.to(values.device, non_blocking=True),
                as_bytes(norms),
                pack_bits(codes.view(-1)[: values.numel()], self.bits),
            )
        )

    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """Levels of the norms."""
        if part.numel() < _SETTINGS.size:
            raise WireFormatError(
                f"settings take {_SETTINGS.size} bytes, found {part.numel()} bytes"
            )
        settings = bytes(part[: _SETTINGS.size].tolist())
        bits, norm, zero, bucket = _SETTINGS.unpack(settings)
        if not 2 <= bits <= MOST_BITS or norm >= len(_NORMS) or zero or not bucket:
            raise WireFormatError(f"no such settings: bits {bits}, norm {norm}, bucket {bucket}")
        bucket = min(bucket, max(1, count))  # or one bucket could claim more memory than the values
        norm_count = -(-count // bucket)
        norm_end = _SETTINGS.size + 4 * norm_count
        expected = norm_end + packed_bytes(count, bits)
        expect_bytes(
            part, expected, f"settings, {norm_count} norms and {count} codes of {bits} bits"
        )
        norms = part[_SETTINGS.size : norm_end].view(torch.float32)
        codes = unpack_bits(part[norm_end:], count, bits)
        levels = _levels(bits)
        if bool((norms < 0).any()) or bool((codes > 2 * levels).any()):
            raise WireFormatError(f"norms must not be negative, nor codes above {2 * levels}")
        each = norms.repeat_interleave(bucket, output_size=norm_count * bucket)[:count]
        # A tensor, since by a plain number CUDA divides with another rounding than the CPU.
        full = torch.full((), levels, dtype=dtype, device=part.device)
        return (codes - levels).to(dtype).div_(full).mul_(each)

    def error_bound(self, values: Tensor) -> Tensor:
        """One level, the rounding of the values' dtype, and what saturates."""
        buckets = self._buckets(values)
        norms = self._norms(buckets).double()[:, None].expand(buckets.shape).reshape(-1)
        size = values.abs().double()
        form = torch.finfo(values.dtype)
        rounding = 4 * form.eps * size + form.tiny * form.eps
        excess = (size - _LARGEST).clamp(min=0)
        return norms[: values.numel()] / self.levels + rounding + excess

    def _buckets(self, values: Tensor) -> Tensor:
        """One bucket a row, the last filled up with zeros."""
        bucket = min(self.bucket, max(1, values.numel()))
        fitted = saturate(values, _LARGEST) if values.dtype == torch.float64 else values
        return pad(fitted, (0, -values.numel() % bucket)).view(-1, bucket)

    def _norms(self, buckets: Tensor) -> Tensor:
        """Each bucket's norm, rounded up to float32."""
        if not buckets.numel():
            return buckets.new_zeros(0, dtype=torch.float32)
        if self.norm == "max":
            exact = buckets.abs().amax(1).double()
        else:
            exact = row_sums(buckets.double().square()).sqrt_()
        exact = saturate(exact, _LARGEST)
        norms = exact.float()
        above = torch.nextafter(norms, torch.full_like(norms, float("inf")))
        return torch.where(norms < exact, above, norms)


def _levels(bits: int) -> int:
    return (1 << (bits - 1)) - 1
