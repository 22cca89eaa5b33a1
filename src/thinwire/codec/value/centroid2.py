"""Two bits per value: which of four bins it is in, and the bins' means."""

import struct
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from thinwire.codec.parts import expect_bytes
from thinwire.codec.value.chunks import check_chunk
from thinwire.errors import WireFormatError
from thinwire.kernels.centroids import BINS, BITS, from_centroids, groups_in, to_centroids
from thinwire.kernels.centroids.reference import in_groups, spread_of
from thinwire.kernels.kept import kept
from thinwire.kernels.pack_bits import pack_bits, packed_bytes, unpack_bits
from thinwire.types import ValueCodec

_SETTINGS = struct.Struct("<II")
_LANES = 8 // BITS  # codes in a byte


@dataclass(frozen=True, slots=True)
class Centroid2Value(ValueCodec):
    """The 2-bit values of SparseLoCo (2508.15706): four bins by σ, each sent as its mean.

    Bins end at -σ, 0 and σ, the root mean square of `group` values in a row: nearly the best ends
    both for normal values (0.98σ; Max, 1960) and for what a selection of a few percent leaves of
    them (1.07σ). Means are then the best that can be sent: ‖x - Q(x)‖² = ‖x‖² - Σ mean², a
    contraction whatever the values are, as error feedback needs it. Of normal values 11.7 % of the
    squared norm is lost, of their largest 1.6 % only 0.45 %: these lie close to ±the threshold,
    where the even grids of `chunked` have no point.

    |error| < σ inside of ±σ, and at most the largest magnitude less σ beyond. Zero is not among the
    means; a zero comes back as that of its bin.

    Where we leave the paper: bins have ends at ±σ and zero, not at multiples of σ from the mean,
    so that no value comes back with another sign; means are of `group` values and not of a whole
    tensor, so that σ follows the scale from layer to layer (2.125 bits a value with 1024).

    Part: `group` as u32 and four zero bytes; four means for each group in the values' dtype; then
    the bins, 0 to 3 from the lowest, and zeros up to a whole byte.
    """

    id = 15
    name = "centroid2"
    steady = True

    group: int = 1024

    def __post_init__(self) -> None:
        check_chunk("group", self.group)

    @property
    def joins(self) -> bool:
        """Not: small tensors that are let past would come back as one of four values."""
        return False

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """The settings, the means and the bins."""
        return self.encode_rows(values[None], seed)[0]

    def encode_rows(self, values: Tensor, seed: int) -> Tensor:
        size, count = values.shape
        centroids, codes = to_centroids(values, _within(self.group, count))
        filled = pad(codes, (0, -count % _LANES)).reshape(-1)
        parts = (
            _head(self.group, values.device).expand(size, -1),
            centroids.view(size, -1).view(torch.uint8),
            pack_bits(filled, BITS).view(size, -1),
        )
        return torch.cat(parts, 1)

    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """The means."""
        if part.dim() == 2:
            return self._decode_rows(part, count, dtype)
        if part.numel() < _SETTINGS.size:
            raise WireFormatError(f"settings take {_SETTINGS.size} bytes, found {part.numel()}")
        group, zero = _SETTINGS.unpack(bytes(part[: _SETTINGS.size].tolist()))
        if zero or not group:
            raise WireFormatError(f"no such settings: groups of {group}, spare bytes {zero}")
        sender = Centroid2Value(group)
        expect_bytes(part, sender.size(count, dtype), f"groups of {group} and {count} bins")
        values = sender._decode_rows(part[None], count, dtype)[0]
        sender._check(part, count, dtype)
        return values

    def size(self, count: int, dtype: torch.dtype) -> int:
        return self._means_end(count, dtype) + packed_bytes(count, BITS)

    def error_bound(self, values: Tensor) -> Tensor:
        """See the class; rounding adds a little."""
        count = values.numel()
        if not count:
            return values.double()
        group = _within(self.group, count)
        largest, mean_square = spread_of(in_groups(values[None], group), count, group)
        largest, sigma = (
            each.repeat_interleave(group)[:count]
            for each in (largest, largest * mean_square.sqrt())
        )
        form = torch.finfo(values.dtype)
        rounding = 4 * form.eps * largest + form.tiny * form.eps
        inside = values.abs().double() < sigma
        return torch.where(inside, sigma, largest - sigma) + rounding

    def _means_end(self, count: int, dtype: torch.dtype) -> int:
        groups = groups_in(count, _within(self.group, count))
        return _SETTINGS.size + groups * BINS * dtype.itemsize

    def _decode_rows(self, parts: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        rows, end = len(parts), self._means_end(count, dtype)
        means = parts[:, _SETTINGS.size : end].reshape(-1).view(dtype)
        slots = count + -count % _LANES
        codes = unpack_bits(parts[:, end:].reshape(-1), rows * slots, BITS).view(rows, slots)
        return from_centroids(
            means.view(rows, -1, BINS), codes[:, :count], _within(self.group, count)
        )

    def _check(self, part: Tensor, count: int, dtype: torch.dtype) -> None:
        """Refuse means on the wrong side of zero, and spare bins that are not zero."""
        end = self._means_end(count, dtype)
        means = part[_SETTINGS.size : end].view(dtype).view(-1, BINS)
        right = ((means[:, :2] <= 0) & (means[:, 2:] >= 0)).all(1) & means.isfinite().all(1)
        if not bool((right | means.isnan().all(1)).all()):
            raise WireFormatError("means must not be positive below zero, nor negative above")
        if count % _LANES and int(part[-1]) >> (count % _LANES * BITS):
            raise WireFormatError(f"the spare bins after {count} values are not zero")


def _within(group: int, count: int) -> int:
    """One group cannot claim more memory than the values."""
    return min(group, max(1, count))


@kept(64)
def _head(group: int, device: torch.device) -> Tensor:
    """Kept, since bringing it to a GPU makes the host wait."""
    settings = torch.frombuffer(bytearray(_SETTINGS.pack(group, 0)), dtype=torch.uint8)
    return settings.to(device)
