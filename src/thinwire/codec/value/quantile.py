"""Six bits per value: which of 64 equally full buckets it is in."""

import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.errors import WireFormatError
from thinwire.kernels._numeric import row_sums
from thinwire.kernels.pack_bits import MOST_BITS, pack_bits, packed_bytes, unpack_bits
from thinwire.kernels.sort_ranks import sort_ranks
from thinwire.settings import check_integer
from thinwire.types import ValueCodec

_SETTINGS = struct.Struct("<B7x")


@dataclass(frozen=True, slots=True)
class QuantileValue(ValueCodec):
    """The quantile buckets of SketchML (Jiang et al., SIGMOD 2018), 2^6 as in DeepReduce.

    Values are sorted and cut into buckets of equal size; each is sent as its bucket's number and
    comes back as the bucket's mean. |error| ≤ the bucket's width, and the sum over a bucket is
    kept.

    Signs: SketchML sketches positive and negative values apart and sends both sets. Here they share
    one table, in which each sign has buckets in proportion to its number of values and at least
    one, and zeros, if there are any, have one of their own. No bucket then has two signs in it: no
    value comes back with another sign, zeros come back as zeros, and no list of signs is sent.

    Deviations: quantiles are exact, not sketched, since a sort costs less than a sketch in Python
    could; and no hashing of bucket numbers (MinMaxSketch), which makes sizes smaller and values
    wrong.

    Part: bits (u8) and seven zero bytes; the min(2^bits, count) means in the values' dtype, zero
    where a bucket is not used; then the bucket of each value.
    """

    id = 11
    name = "quantile"

    bits: int = 6

    def __post_init__(self) -> None:
        # below two, a sign or the zeros would have no bucket
        check_integer("bits", self.bits, 2, MOST_BITS)

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """The settings, the means and the buckets."""
        ascending, ranks = sort_ranks(values)
        starts = self._starts(ascending)
        buckets = bucket_of_rank(starts, values.numel()).index_select(0, ranks)
        means = values.new_zeros(min(1 << self.bits, values.numel()))
        means[: starts.numel()] = bucket_means(ascending, starts)
        head = torch.frombuffer(bytearray(_SETTINGS.pack(self.bits)), dtype=torch.uint8)
        return torch.cat((head.to(values.device), as_bytes(means), pack_bits(buckets, self.bits)))

    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """The means."""
        if part.numel() < _SETTINGS.size:
            raise WireFormatError(f"settings take {_SETTINGS.size} bytes, found {part.numel()}")
        settings = bytes(part[: _SETTINGS.size].tolist())
        bits = settings[0]
        if not 2 <= bits <= MOST_BITS or any(settings[1:]):
            raise WireFormatError(f"no such settings: {settings.hex()}")
        used = min(1 << bits, count)
        end = _SETTINGS.size + used * dtype.itemsize
        what = f"settings, {used} means and {count} buckets of {bits} bits"
        expect_bytes(part, end + packed_bytes(count, bits), what)
        buckets = unpack_bits(part[end:], count, bits)
        if bool((buckets >= used).any()):
            raise WireFormatError(f"buckets must be below {used}, found {int(buckets.max())}")
        return part[_SETTINGS.size : end].view(dtype).index_select(0, buckets)

    def error_bound(self, values: Tensor) -> Tensor:
        """How wide the value's bucket is."""
        if not values.numel():
            return values.double()
        ascending, ranks = sort_ranks(values)
        starts = self._starts(ascending)
        ends = torch.cat((starts[1:], starts.new_full((1,), values.numel())))
        # Halved, or the width of a bucket of large float64 values would overflow.
        halves = ascending[ends - 1].double() / 2 - ascending[starts].double() / 2
        buckets = bucket_of_rank(starts, values.numel()).index_select(0, ranks)
        return 2 * halves.index_select(0, buckets)

    def _starts(self, ascending: Tensor) -> Tensor:
        """The rank that each bucket in use begins at."""
        count = ascending.numel()
        negatives, zeros = int((ascending < 0).sum()), int((ascending == 0).sum())
        positives = count - negatives - zeros  # and whatever is NaN: it is sorted last
        room = min(1 << self.bits, count) - (zeros > 0)
        below = round(room * negatives / max(1, negatives + positives))
        below = min(max(below, negatives > 0), room - (positives > 0), negatives)
        above = min(room - below, positives)
        groups = ((0, negatives, below), (negatives, zeros, min(1, zeros)),
                  (negatives + zeros, positives, above))  # fmt: skip
        starts = [first + i * size // n for first, size, n in groups for i in range(n)]
        return torch.tensor(starts, dtype=torch.int64, device=ascending.device)


def bucket_of_rank(starts: Tensor, count: int) -> Tensor:
    """The int32 bucket of each place in the order."""
    begins = torch.zeros(count, dtype=torch.int32, device=starts.device)
    begins[starts[1:]] = 1
    return begins.cumsum(0, dtype=torch.int32)


def bucket_means(ascending: Tensor, starts: Tensor) -> Tensor:
    """The mean of each bucket, in its values' dtype and never outside of the bucket."""
    if not starts.numel():
        return ascending
    ends = torch.cat((starts[1:], starts.new_full((1,), ascending.numel())))
    first, last = ascending[starts], ascending[ends - 1]
    sizes = ends - starts
    # Summed in a fixed order, as rows as wide as the widest bucket of more than one value: those
    # of zeros are left out, since they may be as many as all the others together.
    wide = torch.where(first == 0, 1, sizes)
    places = torch.arange(int(wide.max()), device=starts.device)
    inside = places < wide[:, None]
    members = ascending[(starts[:, None] + places).clamp(max=ascending.numel() - 1)].double()
    # Divided first: the sum of large float64 values would overflow.
    shares = torch.where(inside, members / wide[:, None], 0)
    means = row_sums(shares).to(ascending.dtype)
    # Zero is added so that it has one sign: devices differ in which of two zeros is the larger.
    return torch.maximum(torch.minimum(means, last), first).add_(0.0)
