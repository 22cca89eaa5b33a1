"""OmniReduce (Fei et al., SIGCOMM 2021): only blocks that are not zero travel."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.collective._blocks import block_count, in_blocks, total_of, without_padding
from thinwire.collective._owners import delivered_of, reduce_by_owner
from thinwire.kernels.merge import nonzero
from thinwire.settings import check_integer
from thinwire.types import AnyCodec, Codec, Collective, ExchangeContext, Reduced, Selection, Sparse


@dataclass(frozen=True, slots=True)
class OmniReduce(Collective):
    """Each block has an aggregator, which adds it up and returns it to all if anyone had it.

    Meant for gradients whose non-zeros come in blocks: `BlockTopK`, or embeddings, whose rows are
    the blocks. A rank sends its non-zero blocks once, and (P-1) times those of the union that it
    aggregates; a block takes 4·block + 4 bytes with raw codecs. Lossless for what was selected.

    Where we leave the paper: peers are the aggregators, where it prefers nodes of their own;
    block b belongs to rank b mod P, so that neighbouring blocks spread over all of them. A rank
    sends all its blocks at once, with their numbers: the paper streams one at a time, each with a
    look-ahead to the next, so that a switch can aggregate in fixed memory. And sums are in rank
    order, not in order of arrival.
    """

    name = "omnireduce"
    sends_selection = True

    block: int = 256  # elements

    def __post_init__(self) -> None:
        check_integer("block", self.block, 1)

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        assert isinstance(codec, Codec)
        with ctx.phase("encode"):
            own, block = in_blocks(s, self.block)
            parts = _deal(_to_rows(own, block), ctx.comm.size)
            found_others = ctx.source is not None and not codec.keeps_indices
            sources = _stripes(ctx.source, block, ctx.comm.size) if found_others else ()
        totals, lost = reduce_by_owner(parts, _sum_rows, codec, ctx, sources=sources)
        with ctx.phase("decode"):
            rounding = _collect(lost, own.numel, block)
            if own.values.dim() == 1:
                rounding = without_padding(rounding, own.numel)
            delivered = delivered_of(own, [nonzero(rounding)])
            rows = _collect(_sparse(totals), own.numel, block)
            return Reduced(total_of(rows, own.numel, ctx), delivered)


def _to_rows(own: Sparse, block: int) -> Sparse:
    """The blocks that ordered elements lie in, with zeros between these; rows as they are."""
    if own.values.dim() == 2:
        return own
    blocks, place = torch.unique_consecutive(own.indices // block, return_inverse=True)
    rows = own.values.new_zeros(blocks.numel(), block)
    rows.view(-1)[place * block + own.indices % block] = own.values
    return Sparse(blocks, rows, block_count(own.numel, block) * block)


def _deal(rows: Sparse, size: int) -> list[Sparse]:
    """Each rank's stripe: block b goes to rank b mod P, as its row b // P."""
    stripes = []
    for rank in range(size):
        mine = (rows.indices % size == rank).nonzero().flatten()
        length = block_count(rows.rows - rank, size)  # of the stripe
        stripes.append(Sparse(rows.indices[mine] // size, rows.values[mine], length * rows.width))
    return stripes


def _stripes(source: Tensor | None, block: int, size: int) -> list[Tensor]:
    """What the stripes of `_deal` were selected from: all blocks, the last filled up with zeros."""
    assert source is not None
    missing = -source.numel() % block
    blocks = torch.nn.functional.pad(source, (0, missing)).view(-1, block)
    return [blocks[rank::size].reshape(-1) for rank in range(size)]


def _collect(stripes: list[Sparse], numel: int, block: int) -> Sparse:
    """The stripes' blocks under their own numbers, in order."""
    size = len(stripes)
    blocks = torch.cat([part.indices * size + rank for rank, part in enumerate(stripes)])
    rows = torch.cat([part.values for part in stripes])
    return Sparse(blocks, rows, block_count(numel, block) * block, ordered=False).sorted()


def _sum_rows(everyones: list[Selection]) -> Sparse:
    """The union of the parts' rows, added in rank order."""
    parts = _sparse(everyones)
    indices, place = torch.unique(torch.cat([part.indices for part in parts]), return_inverse=True)
    rows = parts[0].values.new_zeros(indices.numel(), parts[0].width)
    places = place.split([part.count for part in parts])
    for part, where in zip(parts, places, strict=True):
        rows.index_add_(0, where, part.values)  # no row twice in a part: no race on a device
    return Sparse(indices, rows, parts[0].numel)


def _sparse(parts: list[Selection]) -> list[Sparse]:
    """Parts of blocks are sparse, whatever the codec."""
    return [part for part in parts if isinstance(part, Sparse)]
