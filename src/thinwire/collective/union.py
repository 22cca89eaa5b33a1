"""Union allreduce: agree on which blocks anyone touches, then one dense allreduce over these."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.collective._blocks import block_count, check_block, nonzero_elements, total_of
from thinwire.collective.dense import Dense
from thinwire.kernels.pack_bits import pack_bits, packed_bytes, unpack_bits
from thinwire.types import AnyCodec, CodecKind, Reduced, Selection, Sparse, StepContext


@dataclass(frozen=True, slots=True)
class UnionAllReduce:
    """Indices cost one bit a block, and the backend's own allreduce adds the values.

    Ours. It pays where the ranks touch much the same blocks: `RandomK(shared=True)`, `BlockTopK`,
    embeddings of frequent words. A rank sends the bitmap, and 2·(P-1)/P of the union's values, so
    when the union is everything it is dense allreduce and a bitmap. Lossless for what was
    selected with "fp32"; "fp16" and "bf16" round as in `Dense`.
    """

    block: int = 64  # one bit of bitmap for 2048 of values
    dtype: str = "fp32"

    takes: ClassVar[CodecKind] = "none"

    def __post_init__(self) -> None:
        check_block(self.block)
        Dense(self.dtype)  # knows which there are

    def exchange(self, s: Selection, codec: AnyCodec, ctx: StepContext) -> Reduced:
        with ctx.phase("encode"):
            own = nonzero_elements(s)
            blocks = block_count(own.numel, self.block)
            mine, which = torch.unique_consecutive(own.indices // self.block, return_inverse=True)
            flags = torch.zeros(blocks, dtype=torch.int32, device=own.indices.device)
            flags[mine] = 1
        union = _touched_by_any(flags, ctx)
        with ctx.phase("encode"):
            first = torch.searchsorted(union, mine) * self.block  # of each of my blocks
            slots = first[which] + own.indices % self.block
            values = own.values.new_zeros(union.numel() * self.block)
            values[slots] = own.values
        reduced = Dense(self.dtype).exchange(values, None, ctx)
        assert isinstance(reduced.total, Tensor)
        assert isinstance(reduced.delivered, Tensor)
        with ctx.phase("decode"):
            # Zeros stay zeros on the wire, so nothing is delivered between the slots.
            delivered = Sparse(own.indices, reduced.delivered[slots], own.numel)
            rows = Sparse(union, reduced.total.view(-1, self.block), blocks * self.block)
            return Reduced(total_of(rows, own.numel, ctx), delivered)


def _touched_by_any(flags: Tensor, ctx: StepContext) -> Tensor:
    """Ascending numbers of the blocks whose flag any rank has set.

    Bitmaps are gathered, or flags are added, whichever sends less (NCCL has no bitwise OR). Both
    costs follow from P and the number of blocks, which all ranks know.
    """
    ranks, blocks = ctx.comm.size, flags.numel()
    count = torch.uint8 if ranks < 256 else torch.int32  # holds a sum over all ranks
    gather_bytes = (ranks - 1) * packed_bytes(blocks, 1)
    sum_bytes = 2 * (ranks - 1) * blocks * count.itemsize // ranks
    if sum_bytes < gather_bytes:
        with ctx.phase("exchange"):
            return ctx.comm.all_reduce(flags.to(count)).nonzero().flatten()
    with ctx.phase("encode"):
        bitmap = pack_bits(flags, 1)
    with ctx.phase("exchange"):
        bitmaps = ctx.comm.all_gather(bitmap)
    with ctx.phase("decode"):
        union = bitmaps[0].clone()
        for other in bitmaps[1:]:
            union |= other
        return unpack_bits(union, blocks, 1).nonzero().flatten()
