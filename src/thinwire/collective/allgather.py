"""Allgather of sparse payloads (TopkA): every rank sees every selection and adds them all."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.kernels.batched_decode import decode_sum
from thinwire.kernels.merge import merge_all
from thinwire.types import AnyCodec, Codec, CodecKind, Reduced, Selection, Sparse, StepContext


@dataclass(frozen=True, slots=True)
class AllGather:
    """Volume 2k(P-1) words with raw codecs; any codec of bytes fits.

    All payloads are decoded at once (DRAGONN, section 4.3, "batched sparse decoding"); it adds,
    where the paper's pseudo code assigns, so an empty slot's (0, 0) cannot overwrite a real
    element 0.
    """

    takes: ClassVar[CodecKind] = "bytes"
    sends_selection: ClassVar[bool] = True  # as it was made: no partial sums, no regions

    def exchange(self, s: Selection, codec: AnyCodec, ctx: StepContext) -> Reduced:
        assert isinstance(codec, Codec)
        with ctx.phase("encode"):
            wire = codec.encode(s, ctx)
        with ctx.phase("exchange"):
            payloads = ctx.comm.all_gather(wire)
        with ctx.phase("decode"):
            parts = [codec.decode(payload, ctx) for payload in payloads]
            delivered = parts[ctx.comm.rank]
            if isinstance(delivered, Sparse) and delivered.values.dim() == 2:
                # Rows of an embedding may be few of very many: no dense total for these.
                rows = [part.sorted() for part in parts if isinstance(part, Sparse)]
                return Reduced(merge_all(rows), delivered)
            if isinstance(delivered, Sparse):
                sparse = [part for part in parts if isinstance(part, Sparse)]
                out = ctx.output(delivered.numel, delivered.values, zeroed=False)
                support = torch.cat([part.indices for part in sparse])
                return Reduced(decode_sum(sparse, out), delivered, support)
            total = ctx.output(delivered.numel(), delivered)
            for part in parts:
                assert isinstance(part, Tensor)
                total += part
            return Reduced(total, delivered)
