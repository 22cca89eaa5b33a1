"""Allgather of sparse payloads (TopkA): every rank sees every selection and adds them all."""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.collective._received import decode_like
from thinwire.kernels.batched_decode import add_rows, decode_sum
from thinwire.kernels.merge import merge_all
from thinwire.kernels.region_reduce import region_reduce
from thinwire.types import (
    AnyCodec,
    Codec,
    Collective,
    ExchangeContext,
    Reduced,
    Selection,
    Sparse,
    State,
)

_DENSE_FROM = 1 / 50  # of all elements: more entries are added faster in a dense total (CPU)


@dataclass(frozen=True, slots=True)
class AllGather(Collective):
    """Volume 2k(P-1) words with raw codecs; any codec of bytes fits.

    All payloads are decoded at once (DRAGONN, section 4.3, "batched sparse decoding"); it adds,
    where the paper's pseudo code assigns, so an empty slot's (0, 0) cannot overwrite a real
    element 0. `batched=False` decodes one payload after the other, to see what that saves: the
    result is the same, bit for bit.
    """

    name = "allgather"

    batched: bool = True

    sends_selection = True  # as it was made: no partial sums, no regions
    joins = True
    in_one_round = True

    def is_steady(self, codec: AnyCodec) -> bool:
        return self.batched and isinstance(codec, Codec) and codec.is_steady

    def replays(self, state: State, step: int) -> Hashable | None:
        return ()

    def arranged(self, s: Selection, codec: AnyCodec) -> Selection:
        if isinstance(s, Sparse) and isinstance(codec, Codec) and codec.takes_any_order(s.rows):
            return s
        return Collective.arranged(self, s, codec)

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        assert isinstance(codec, Codec)
        if ctx.steady and isinstance(s, Sparse):
            return _exchange_equal(s, codec, ctx)
        with ctx.phase("encode"):
            wire = codec.encode(s, ctx)
        with ctx.phase("exchange"):
            payloads = ctx.comm.all_gather(wire)
        with ctx.phase("decode"):
            parts = [decode_like(payload, s, codec, ctx) for payload in payloads]
            delivered = parts[ctx.comm.rank]
            if isinstance(delivered, Sparse):
                total, support = self._add_up([p for p in parts if isinstance(p, Sparse)], ctx)
                return Reduced(total, delivered, support)
            total = ctx.output(delivered.numel(), delivered)
            for part in parts:
                assert isinstance(part, Tensor)
                total += part
            return Reduced(total, delivered)

    def _add_up(self, parts: list[Sparse], ctx: ExchangeContext) -> tuple[Selection, Tensor | None]:
        """The sum of the parts in their order, and the support of a dense one."""
        numel, values = parts[0].numel, parts[0].values
        if values.dim() == 2:
            # Rows of an embedding may be few of very many: no dense total for these.
            return merge_all([part.sorted() for part in parts]), None
        few = sum(part.count for part in parts) < _DENSE_FROM * numel
        if self.batched and ctx.cleared and few:
            # What is written only once, when it is divided, need not be looked for again.
            return region_reduce(parts, numel), None
        support = torch.cat([part.indices for part in parts])
        if self.batched:
            return decode_sum(parts, ctx.output(numel, values, zeroed=False)), support
        total = ctx.output(numel, values)
        for part in parts:
            part.add_to(total)
        return total, support


def _exchange_equal(s: Sparse, codec: Codec, ctx: ExchangeContext) -> Reduced:
    """All ranks' payloads are of one size: they are gathered, checked and added up at once."""
    with ctx.phase("encode"):
        wire = codec.encode(s, ctx)
    with ctx.phase("exchange"):
        wires = ctx.comm.all_gather_equal(wire)
    with ctx.phase("decode"):
        indices, values = codec.decode_rows(wires, s, ctx)
        mean = ctx.output(s.numel, values)
        ctx.later(add_rows(indices, values, mean, 1 / ctx.gradients), ctx.note_bad)
        me = ctx.comm.rank
        delivered = Sparse(indices[me], values[me], s.numel, s.ordered, s.padded)
        return Reduced(mean, delivered, is_mean=True)
