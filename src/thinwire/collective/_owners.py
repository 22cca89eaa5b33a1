"""What collectives of several hops share: owners of parts, and who is charged for what.

A rank delivers its selection less what it lost: the rounding of every wire it encoded, and the
partial sums it pruned. Over all ranks that adds up to the total, whatever the codec.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from thinwire.collective._received import decode_like, decode_total
from thinwire.kernels.merge import merge_all, nonzero, subtract
from thinwire.types import Codec, ExchangeContext, Selection, Sparse

AddUp = Callable[[list[Selection]], Selection]
Sources = Sequence[Tensor]
Encode = Callable[[Selection, Codec, ExchangeContext], tuple[Selection, Tensor]]


def as_it_is(total: Selection, codec: Codec, ctx: ExchangeContext) -> tuple[Selection, Tensor]:
    """A sum and its wire."""
    return total, codec.encode(total, ctx)


def reduce_by_owner(
    parts: Sequence[Selection],
    add_up: AddUp,
    codec: Codec,
    ctx: ExchangeContext,
    encode: Encode = as_it_is,
    sources: Sources = (),
) -> tuple[list[Selection], list[Sparse]]:
    """Every part's sum over the ranks, and what this rank lost of each part.

    `parts[r]` is what this rank has of the part that rank r owns. Owners receive (a
    reduce-scatter), `add_up` in rank order, `encode` the sum, in another form if that is shorter,
    and give it to all (an allgather). An owner does not round its own contribution, only the sum.

    `sources[r]` is what `parts[r]` was selected from, for a codec that finds other indices.
    """
    comm, me = ctx.comm, ctx.comm.rank
    total, wires = collect_by_owner(parts, add_up, codec, ctx, sources)
    with ctx.phase("encode"):
        total, wire = encode(total, codec, _with_source(ctx, sources, me))
    with ctx.phase("exchange"):
        gathered = comm.all_gather(wire)
    with ctx.phase("decode"):
        totals = [
            decode_total(other, part, codec, ctx, or_dense=encode is not as_it_is)
            for other, part in zip(gathered, parts, strict=True)
        ]
        meant, sent = {**dict(enumerate(parts)), me: total}, {**wires, me: wire}
        lost = [lost_on(sent[r], meant[r], codec, ctx) for r in range(comm.size)]
    return totals, lost


def collect_by_owner(
    parts: Sequence[Selection],
    add_up: AddUp,
    codec: Codec,
    ctx: ExchangeContext,
    sources: Sources = (),
) -> tuple[Selection, dict[int, Tensor]]:
    """The sum over the ranks of the part that is this rank's, and what it sent of the others'."""
    comm, me = ctx.comm, ctx.comm.rank
    others = [r for r in range(comm.size) if r != me]
    with ctx.phase("encode"):
        wires = {r: codec.encode(parts[r], _with_source(ctx, sources, r)) for r in others}
    with ctx.phase("exchange"):
        arrived = comm.exchange_sized(wires, others, _device(parts[me]))
    with ctx.phase("decode"):
        own = parts[me]
        theirs = {r: decode_like(wire, own, codec, ctx) for r, wire in arrived.items()}
        everyones = theirs | {me: own}
        return add_up([everyones[r] for r in range(comm.size)]), wires


def _with_source(ctx: ExchangeContext, sources: Sources, part: int) -> ExchangeContext:
    return replace(ctx, source=sources[part] if sources else None)


def lost_on(wire: Tensor, meant: Selection, codec: Codec, ctx: ExchangeContext) -> Sparse:
    """What a wire loses of what was meant. One that loses nothing is not decoded to see that."""
    if not codec.lossless:
        return lost_between(meant, codec.decode(wire, ctx))
    if isinstance(meant, Sparse):
        return Sparse(meant.indices[:0], meant.values[:0], meant.numel)
    return Sparse(torch.empty(0, dtype=torch.int64, device=meant.device), meant[:0], meant.numel())


def lost_between(meant: Selection, arrives: Selection) -> Sparse:
    """Where a wire says something else than was meant, and by how much."""
    if not isinstance(meant, Sparse) or not isinstance(arrives, Sparse):
        gap = dense_of(meant) - dense_of(arrives)
        indices = gap.nonzero().flatten()
        return Sparse(indices, gap[indices], gap.numel())
    if torch.equal(meant.indices, arrives.indices):
        return nonzero(Sparse(meant.indices, meant.values - arrives.values, meant.numel))
    return subtract(meant, arrives.sorted())


def delivered_of(s: Selection, lost: Sequence[Sparse]) -> Selection:
    """The selection less what was lost of it, both in elements. What cancels is left out."""
    gone = [part for part in lost if part.count]
    if not gone:
        return s
    if isinstance(s, Sparse):
        return subtract(s, merge_all(gone))
    delivered = s.clone()
    for part in gone:
        part.add_to(delivered, alpha=-1)
    return delivered


def dense_of(s: Selection) -> Tensor:
    """A selection as the flat tensor it comes from, zero where nothing was selected."""
    return s.to_dense() if isinstance(s, Sparse) else s


def _device(s: Selection) -> torch.device:
    return s.values.device if isinstance(s, Sparse) else s.device
