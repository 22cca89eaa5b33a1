"""Ok-Topk on a GPU: two exchanges of parts of equal size, and nothing that the host must know.

Algorithm 1 with every count fixed beforehand. What makes that possible is that a region is no
interval (section 3.1.1) but all indices that a hash gives to its owner: another hash in each step.

- No boundaries have to be agreed on or kept up to date (lines 5-7). Of k selected elements a
  region's are k/P give or take a few √(k/P), whatever was selected where, and there is room for
  these. What finds none stays in the residual, and is likely to find room with the next hash.
- A region is a fair sample of all sums: its k/P largest are, but for such a deviation, those above
  the global threshold (lines 9-12). So it is exact in each step, and nobody has to be told.
- All owners' shares are equal before they are gathered: nothing has to be evened out (section 5.3).
"""

import math

from thinwire.kernels.deal import deal
from thinwire.kernels.largest_sums import largest_sums
from thinwire.kernels.own_shares import Region, own_shares
from thinwire.kernels.place_rows import place_rows
from thinwire.types import Codec, ExchangeContext, Reduced, Sparse

DEVIATIONS = 4  # beside a P-th of the selection: one in 30,000 regions is fuller
SPARE_ROOM = 16  # elements; where they are few, their number is no normal variable


def exchange_steadily(s: Sparse, codec: Codec, wanted: int, ctx: ExchangeContext) -> Reduced:
    """About `wanted` elements of the sum of all selections."""
    comm, numel = ctx.comm, s.numel
    room = region_room(s.count, comm.size)
    with ctx.phase("encode"):
        seed = ctx.seed_on(s.values.device, "owner")
        rows, values = deal(s.indices, s.values, comm.size, room, seed)
        wires = codec.encode_rows(rows, values, numel, ctx)
    with ctx.phase("exchange"):
        arrived = comm.all_to_all_equal(wires)
    with ctx.phase("decode"):
        like = Sparse(rows[0], values[0], numel, padded=True)
        parts = codec.decode_rows(arrived, like, ctx)
        indices, sums = largest_sums(*parts, _kept(wanted, s, comm.size))
    with ctx.phase("encode"):
        wire = codec.encode_rows(indices[None], sums[None], numel, ctx)[0]
    with ctx.phase("exchange"):
        gathered = comm.all_gather_equal(wire)
    with ctx.phase("decode"):
        survivors = codec.decode_rows(gathered, Sparse(indices, sums, numel, padded=True), ctx)
        mean = ctx.output(numel, sums)
        ctx.later(place_rows(*survivors, mean, ctx.gradients), ctx.note_bad)
        region = Region(comm.rank, indices, sums, survivors[1][comm.rank])
        delivered = own_shares(rows, codec.sent_values(wires, like), region, mean)
        return Reduced(mean, Sparse(*delivered, numel, ordered=False, padded=True), is_mean=True)


def _kept(wanted: int, s: Sparse, ranks: int) -> int:
    """How many sums an owner keeps: a P-th, or as many as a region may have if all are wanted."""
    if wanted < min(s.numel, ranks * s.count):
        return math.ceil(wanted / ranks)
    return region_room(min(s.numel, ranks * s.count), ranks)


def region_room(count: int, ranks: int) -> int:
    """For how many of `count` elements a region has room."""
    mean = count / ranks
    deviation = math.sqrt(mean * (1 - 1 / ranks))
    return min(count, math.ceil(mean + DEVIATIONS * deviation) + SPARE_ROOM)
