"""The blocks that any rank touches: how the ranks agree on them, and where each finds its own."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.collective._blocks import block_count, in_blocks
from thinwire.kernels.pack_bits import pack_bits, packed_bytes, unpack_bits
from thinwire.types import Selection, Sparse, StepContext

LISTS_FROM = 1 << 18  # blocks: below, no list saves more than it takes to ask how long they are
ROUND = 16 << 10  # bytes that a link of 1 to 10 Gbit/s carries in a round's latency, about


@dataclass(frozen=True, slots=True)
class TouchedBlocks:
    """What a rank selected, and where it lies in the blocks of all.

    `own` are elements in order, or rows, each of which is a block. `placed` is the same in places
    counted within the union: block after block.
    """

    own: Sparse
    placed: Sparse
    blocks: Tensor  # ascending numbers, the same on every rank
    block: int

    def total(self, values: Tensor) -> Sparse:
        """Values of the whole union, flat, as blocks of the tensor (filled up to whole ones)."""
        whole = block_count(self.own.numel, self.block) * self.block
        return Sparse(self.blocks, values.view(-1, self.block), whole)

    def share(self, values: Tensor) -> Sparse:
        """What of such values lies where this rank selected."""
        mine = values.view(-1, *self.own.values.shape[1:])[self.placed.indices]
        return Sparse(self.own.indices, mine, self.own.numel)


def agree(s: Selection, block: int, ctx: StepContext) -> TouchedBlocks:
    """The union over the ranks of the blocks, or the rows, in which `s` has something."""
    with ctx.phase("encode"):
        own, block = in_blocks(s, block)
        mine, which = own.indices, None
        if own.values.dim() == 1:
            mine, which = torch.unique_consecutive(mine // block, return_inverse=True)
    blocks = _touched_by_any(mine, block_count(own.numel, block), ctx)
    with ctx.phase("encode"):
        slots = torch.searchsorted(blocks, mine)
        if which is not None:
            slots = (slots * block)[which] + own.indices % block
        return TouchedBlocks(own, Sparse(slots, own.values, blocks.numel() * block), blocks, block)


def _touched_by_any(mine: Tensor, blocks: int, ctx: StepContext) -> Tensor:
    """Ascending numbers of the blocks that are some rank's, given this one's in order.

    Bitmaps are gathered, or flags added, or lists gathered, whichever takes least (NCCL has no
    bitwise OR). All costs follow from what all ranks know: P, the number of blocks, and, where
    these are so many that asking pays, the length of the longest list.
    """
    ranks = ctx.comm.size
    count = torch.uint8 if ranks < 256 else torch.int32  # holds a sum over all ranks
    gather_bytes = (ranks - 1) * packed_bytes(blocks, 1)
    sum_bytes = 2 * (ranks - 1) * blocks * count.itemsize // ranks
    if blocks >= LISTS_FROM:
        narrow = torch.int32 if blocks <= 2**31 else torch.int64
        with ctx.phase("exchange"):
            longest = max(length for (length,) in ctx.comm.all_gather_meta([mine.numel()]))
            if (ranks - 1) * longest * narrow.itemsize <= min(gather_bytes, sum_bytes):
                lists = ctx.comm.all_gather(mine.to(narrow))
                touched: Tensor = torch.unique(torch.cat(lists))
                return touched.to(torch.int64)
    with ctx.phase("encode"):
        flags = torch.zeros(blocks, dtype=torch.int32, device=mine.device)
        flags[mine] = 1
    # Added up they go round a ring, gathered from each to each.
    if sum_bytes + 2 * (ranks - 1) * ROUND < gather_bytes + ROUND:
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
