"""Allgather of sparse payloads (TopkA): every rank sees every selection and adds them all."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.types import AnyCodec, Codec, CodecKind, Reduced, Selection, Sparse, StepContext


@dataclass(frozen=True, slots=True)
class AllGather:
    """Volume 2k(P-1) words with raw codecs; any codec of bytes fits.

    All payloads are decoded in one scatter-add (DRAGONN, section 4.3, "batched sparse
    decoding"); it adds, where the paper's pseudo code assigns, so an empty slot's (0, 0) cannot
    overwrite a real element 0.
    """

    takes: ClassVar[CodecKind] = "bytes"

    def exchange(self, s: Selection, codec: AnyCodec, ctx: StepContext) -> Reduced:
        assert isinstance(codec, Codec)
        with ctx.phase("encode"):
            wire = codec.encode(s, ctx)
        with ctx.phase("exchange"):
            payloads = ctx.comm.all_gather(wire)
        with ctx.phase("decode"):
            parts = [codec.decode(payload, ctx) for payload in payloads]
            delivered = parts[ctx.comm.rank]
            if isinstance(delivered, Sparse):
                total, support = add_sparse(parts, delivered, ctx)
                return Reduced(total, delivered, support)
            total = ctx.output(delivered.numel(), delivered)
            for part in parts:
                assert isinstance(part, Tensor)
                total += part
            return Reduced(total, delivered)


def add_sparse(
    parts: list[Selection], like: Sparse, ctx: StepContext
) -> tuple[Tensor, Tensor | None]:
    """The dense sum of the parts, added in rank order, and where it may be non-zero."""
    sparse = [part for part in parts if isinstance(part, Sparse)]
    total = ctx.output(like.numel, like.values)
    indices = torch.cat([part.indices for part in sparse])
    if like.values.is_cuda:
        # One launch would add colliding elements in any order, and ranks would differ in the
        # last bit; within one payload indices are unique, so one launch each is deterministic.
        for part in sparse:
            part.add_to(total)
    else:
        values = torch.cat([part.values for part in sparse])
        Sparse(indices, values, like.numel, ordered=False).add_to(total)
    return total, indices if like.width == 1 else None
