"""MiCRO (Yoon and Oh, 2023): the ranks' lists of indices are gathered, and all values added there.

ExDyna, by the same authors, does so too.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.collective._blocks import sum_blocks
from thinwire.collective._lists import pack_known, pack_list, unpack_known, unpack_list
from thinwire.collective._owners import dense_of
from thinwire.collective.dense import Dense
from thinwire.collective.union import UnionAllReduce
from thinwire.types import (
    PADDING,
    AnyCodec,
    Collective,
    ExchangeContext,
    Reduced,
    Selection,
    Sparse,
)


@dataclass(frozen=True, slots=True)
class Micro(Collective):
    """Every rank brings what it has at all indices that anyone lists; the backend adds it up.

    Meant for `partition`, where each rank selects k/P elements in a part of the tensor that is its
    own in this step: lists have nothing in common, and the values are k whatever P is. A rank
    sends (P-1)·k/P indices, in 12 to 16 bits, and 2k·(P-1)/P values, in fp32, "fp16" or "bf16" as
    in `Dense`. With any other sparsifier it is the union of the lists that travels.
    """

    name = "micro"

    dtype: str = "fp32"

    takes = "none"
    sends_selection = True
    joins = True

    def __post_init__(self) -> None:
        Dense(self.dtype)  # knows which there are

    def is_steady(self, codec: AnyCodec) -> bool:
        return True

    def without_loss(self) -> Collective:
        """As rows, whose blocks are theirs."""
        return UnionAllReduce()

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        if not isinstance(s, Sparse):
            return Dense(self.dtype).exchange(s, None, ctx)
        own = s.sorted().elements()
        indices = _gather_steadily(own, ctx) if ctx.steady else _gather(own, ctx)
        source = dense_of(own) if ctx.source is None else ctx.source
        return sum_blocks(source, indices, 1, self.dtype, ctx)


def _gather(own: Sparse, ctx: ExchangeContext) -> Tensor:
    """Ascending, each once."""
    with ctx.phase("encode"):
        wire = pack_list(own.indices, own.numel)
    with ctx.phase("exchange"):
        wires = ctx.comm.all_gather(wire)
    with ctx.phase("decode"):
        lists = [unpack_list(other, own.numel) for other in wires]
        union: Tensor = torch.unique(torch.cat(lists))
        return union


def _gather_steadily(own: Sparse, ctx: ExchangeContext) -> Tensor:
    """Ascending; what is listed twice becomes padding where it lies."""
    with ctx.phase("encode"):
        wire = pack_known(own.indices, own.numel)
    with ctx.phase("exchange"):
        wires = ctx.comm.all_gather_equal(wire)
    with ctx.phase("decode"):
        indices = unpack_known(wires, own.count, own.numel, ctx).view(-1).sort().values
        again = indices[1:] == indices[:-1]
        indices[1:].masked_fill_(again, PADDING)
        return indices
