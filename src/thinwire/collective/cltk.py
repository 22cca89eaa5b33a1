"""CLT-k (ScaleCom, Chen et al., NeurIPS 2020): one rank's indices count for all, in turn."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.collective._blocks import sum_blocks
from thinwire.collective._lists import list_bytes, pack_known, pack_list, unpack_known, unpack_list
from thinwire.collective._owners import dense_of
from thinwire.collective._tree import hand_down
from thinwire.collective.dense import Dense
from thinwire.collective.union import UnionAllReduce
from thinwire.types import AnyCodec, Collective, ExchangeContext, Reduced, Selection, Sparse


@dataclass(frozen=True, slots=True)
class CltK(Collective):
    """The leader of step t, rank t mod P, tells its k indices; the backend adds all ranks' values.

    The cyclic local top-k of ScaleCom. Supports are alike, so that nothing fills in: a rank
    receives k indices and 2k·(P-1)/P values whatever P is. Indices go down a tree, in 12 to 16
    bits; the leader sends them ⌈log2 P⌉ times at most. Values are added in fp32, or in "fp16"
    and "bf16" as in `Dense`.

    The ranks' accumulated gradients resemble each other, so that the leader's choice is nearly as
    good as each rank's own; what a rank would rather have sent waits in its residual, until it
    leads at the latest. Where we leave the paper: residuals are not low-pass filtered (β = 1).
    """

    name = "clt-k"

    dtype: str = "fp32"

    takes = "none"
    sends_selection = True
    joins = True

    def __post_init__(self) -> None:
        Dense(self.dtype)  # knows which there are

    def is_steady(self, codec: AnyCodec) -> bool:
        return True

    def without_loss(self) -> Collective:
        """All that was selected: there is no residual for what the leader lacks."""
        return UnionAllReduce()

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        if not isinstance(s, Sparse):
            return Dense(self.dtype).exchange(s, None, ctx)
        own = s.sorted().elements()
        indices = _lead_steadily(own, ctx) if ctx.steady else _lead(own, ctx)
        source = dense_of(own) if ctx.source is None else ctx.source
        return sum_blocks(source, indices, 1, self.dtype, ctx)


def leader_of(step: int, ranks: int) -> int:
    """Whose indices count in this step."""
    return step % ranks


def _lead(own: Sparse, ctx: ExchangeContext) -> Tensor:
    leader = leader_of(ctx.step, ctx.comm.size)
    wire = own.indices[:0]
    if ctx.comm.rank == leader:
        with ctx.phase("encode"):
            wire = pack_list(own.indices, own.numel)
    with ctx.phase("exchange"):
        wire = hand_down(wire, ctx, leader)
    with ctx.phase("decode"):
        return unpack_list(wire, own.numel)


def _lead_steadily(own: Sparse, ctx: ExchangeContext) -> Tensor:
    """All ranks chose as many; only whose they are is to be told."""
    leader = leader_of(ctx.step, ctx.comm.size)
    with ctx.phase("encode"):
        if ctx.comm.rank == leader:
            wire = pack_known(own.indices, own.numel)
        else:
            size = list_bytes(own.count, own.numel)
            wire = torch.empty(size, dtype=torch.uint8, device=own.indices.device)
    with ctx.phase("exchange"):
        wire = ctx.comm.broadcast(wire, leader)
    with ctx.phase("decode"):
        return unpack_known(wire[None], own.count, own.numel, ctx)[0]
