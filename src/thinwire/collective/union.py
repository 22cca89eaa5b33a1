"""Union allreduce: agree on which blocks anyone touches, then one dense allreduce over these."""

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from thinwire.collective._blocks import block_count, sum_blocks, total_of
from thinwire.collective.dense import Dense
from thinwire.collective.touched import agree, bits_of, union_of
from thinwire.settings import check_integer
from thinwire.types import AnyCodec, Collective, ExchangeContext, Reduced, Selection, Sparse, State

ROOM = 1.15  # times an earlier step's union: it changes slowly
SPARE_ROOM = 16  # blocks
NEAR = 1.08  # within this of each other two unions have the same room


@dataclass(frozen=True, slots=True)
class UnionAllReduce(Collective):
    """Indices cost one bit per block, and the backend's own allreduce adds the values.

    Ours. It pays where the ranks touch much the same blocks: `RandomK(shared=True)`, `BlockTopK`,
    embeddings of frequent words, whose rows are the blocks. A rank sends the bitmap (or, of very
    many blocks, the list of its own), and 2·(P-1)/P of the union's values, so when the union is
    everything it is dense allreduce and a bitmap. Lossless for what was selected with "fp32";
    "fp16" and "bf16" round as in `Dense`.

    A block that any rank chose travels from all ranks, with what each of them has there: the
    allreduce carries it anyway.

    On a GPU nobody asks how large the union is. There is room for `ROOM` times an earlier step's,
    the same while the union stays near that; the blocks that find none are the last ones, and stay
    in the residuals.
    """

    name = "union"

    block: int = 64  # one bit of bitmap for 2048 of values
    dtype: str = "fp32"

    takes = "none"
    sends_selection = True
    joins = True

    def __post_init__(self) -> None:
        check_integer("block", self.block, 1)
        Dense(self.dtype)  # knows which there are

    def without_loss(self) -> "UnionAllReduce":
        """The same in the tensor's own dtype."""
        return UnionAllReduce(self.block)

    def is_steady(self, codec: AnyCodec) -> bool:
        return True

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        if ctx.steady and isinstance(s, Sparse) and ctx.source is not None:
            return self._exchange_steady(s, ctx.source, ctx)
        union = agree(s, self.block, ctx)
        if ctx.source is not None:
            return sum_blocks(ctx.source, union.blocks, self.block, self.dtype, ctx)
        with ctx.phase("encode"):
            values = union.placed.to_dense()
        # A sum and no mean: it is divided with what is around it.
        reduced = Dense(self.dtype).exchange(values, None, replace(ctx, gradients=1))
        assert isinstance(reduced.total, Tensor)
        assert isinstance(reduced.delivered, Tensor)
        with ctx.phase("decode"):
            # Zeros stay zeros on the wire, so nothing is delivered beside what was selected.
            delivered = union.share(reduced.delivered)
            return Reduced(total_of(union.total(reduced.total), union.own.numel, ctx), delivered)

    def _exchange_steady(self, s: Sparse, source: Tensor, ctx: ExchangeContext) -> Reduced:
        """Bitmaps are gathered; the union's blocks are listed on the device, as far as there is
        room, and padding behind them."""
        everything = block_count(s.numel, self.block)
        with ctx.phase("encode"):
            bitmap = bits_of(s, self.block)
        with ctx.phase("exchange"):
            bitmaps = ctx.comm.all_gather_equal(bitmap)
        with ctx.phase("encode"):
            touched = union_of(bitmaps, everything)
            place = touched.cumsum(0)
            room = self._room(s, everything, ctx)
            ctx.later(place[-1], lambda count: _remember(count, ctx.memory))
            # What has no place goes behind the last one, again and again.
            slot = torch.where((touched > 0) & (place <= room), place - 1, room)
            blocks = slot.new_full((room + 1,), everything)
            blocks.scatter_(0, slot, torch.arange(everything, device=slot.device))
        return sum_blocks(source, blocks[:room], self.block, self.dtype, ctx)

    def _room(self, s: Sparse, everything: int, ctx: ExchangeContext) -> int:
        """For how many blocks: the same number on every rank."""
        if "blocks" in ctx.memory:
            expected = math.ceil(ROOM * int(ctx.memory["blocks"])) + SPARE_ROOM
        else:
            expected = ctx.comm.size * (s.count // self.block + 1)
        return min(everything, expected)

    def replays(self, state: State, step: int) -> Hashable | None:
        """The room, on which sizes depend."""
        return int(state["blocks"]) if "blocks" in state else None


def _remember(count: int, memory: State) -> None:
    """How large the union was, unless the room for what is known fits it as well."""
    known = int(memory["blocks"]) if "blocks" in memory else 0
    if not count / NEAR <= known <= count * NEAR:
        memory["blocks"] = torch.tensor(count)
