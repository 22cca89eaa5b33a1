"""Ok-Topk, phase 1: split and reduce (section 3.1.1; Algorithm 1, line 8)."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor

from thinwire.collective.oktopk.messages import announced, decode_part, encode_part
from thinwire.collective.oktopk.regions import Regions
from thinwire.kernels.region_reduce import region_reduce
from thinwire.types import Codec, ExchangeContext, Sparse, Waitable


@dataclass(frozen=True, slots=True)
class Split:
    """What a rank has after phase 1.

    `reduced` is the sum of all ranks' entries in its region, indices counted from the region's
    start; `added` its own selection as it entered the sums, after the rounding of the wire.
    """

    reduced: Sparse
    added: Sparse
    sent: int  # entries that left this rank
    load: int  # entries that were added up here, its own included


def split_and_reduce(
    s: Sparse, regions: Regions, codec: Codec, in_flight: int, ctx: ExchangeContext
) -> Split:
    """Send every rank the entries in its region, and add up those in one's own.

    Destinations rotate (figure 2b): at distance d a rank sends to rank + d and receives from
    rank - d, so no receiver is everyone's first. Up to `in_flight` distances make a bucket
    (figure 2c); a bucket is added up while the next one is under way. Entries in the own region
    enter the sum as they are, and are added first; then the others by distance, always in this
    order, so that the bits of the sum do not depend on who was quicker.
    """
    here = regions.owned_by(ctx.comm.rank)
    parts = regions.cut(s)
    with ctx.phase("encode"):
        wires = {
            regions.owner(r): encode_part(part, codec, ctx)
            for r, part in enumerate(parts)
            if r != here
        }
    reduced, load = parts[here], parts[here].count
    for bucket in _arriving(wires, s.indices.device, in_flight, ctx):
        with ctx.phase("decode"):
            width = reduced.numel
            arrived = [decode_part(wire, reduced, width, codec, ctx) for wire in bucket]
            load += sum(part.count for part in arrived)
            reduced = region_reduce([reduced, *arrived], width)
    with ctx.phase("decode"):
        added = s if codec.lossless else _as_received(parts, wires, here, regions, codec, ctx)
    return Split(reduced, added, s.count - parts[here].count, load)


def buckets(ranks: int, in_flight: int) -> list[range]:
    """The distances to the other ranks, those together whose messages are under way together."""
    distances = range(1, ranks)
    return [distances[i : i + in_flight] for i in range(0, ranks - 1, in_flight)]


def _arriving(
    wires: dict[int, Tensor], device: torch.device, in_flight: int, ctx: ExchangeContext
) -> Iterator[list[Tensor]]:
    """What the others send, bucket by bucket, in the order of distances; the next is under way."""
    comm = ctx.comm
    rounds = buckets(comm.size, in_flight)

    def start(bucket: range) -> Waitable:
        targets = [(comm.rank + d) % comm.size for d in bucket]
        sources = [(comm.rank - d) % comm.size for d in bucket]
        return comm.start({r: wires[r] for r in targets}, {r: buffers[r] for r in sources})

    with ctx.phase("exchange"):
        buffers = announced(wires, wires.keys(), device, ctx)
        under_way = start(rounds[0]) if rounds else None
    for bucket, following in zip_longest(rounds, rounds[1:]):
        with ctx.phase("exchange"):
            assert under_way is not None
            under_way.wait()
            under_way = start(following) if following else None
        yield [buffers[(comm.rank - d) % comm.size] for d in bucket]


def _as_received(
    parts: list[Sparse],
    wires: dict[int, Tensor],
    here: int,
    regions: Regions,
    codec: Codec,
    ctx: ExchangeContext,
) -> Sparse:
    """The selection as its receivers decoded it: the rounding of the wire is the sender's."""
    received = [
        part if r == here else decode_part(wires[regions.owner(r)], part, part.numel, codec, ctx)
        for r, part in enumerate(parts)
    ]
    return regions.join(enumerate(received))
