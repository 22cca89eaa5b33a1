"""The blocks that any rank touches: how the ranks agree on them, and where each finds its own."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from thinwire.collective._blocks import block_count, in_blocks
from thinwire.comm.messages import ring_bytes
from thinwire.errors import WireFormatError
from thinwire.kernels.pack_bits import pack_bits, packed_bytes, unpack_bits
from thinwire.types import ExchangeContext, Selection, Sparse

Method = Literal["lists", "flags", "bitmaps"]
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


def agree(s: Selection, block: int, ctx: ExchangeContext) -> TouchedBlocks:
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


def asks_lengths(blocks: int) -> bool:
    """Whether blocks are so many that it pays to ask first how long the ranks' lists are."""
    return blocks >= LISTS_FROM


def method_of(ranks: int, blocks: int, longest: float | None = None) -> tuple[Method, float]:
    """How the ranks agree on their blocks, and the bytes of the tensor that each of them brings.

    Lists and bitmaps are gathered, flags are added up (NCCL has no bitwise OR): whichever takes
    least. It follows from what all ranks know: P, the number of blocks, and, if it was asked for,
    the length of the longest list. The cost model chooses by this function too.
    """
    bitmap, flags = packed_bytes(blocks, 1), blocks * _flag_dtype(ranks).itemsize
    gather_bytes, sum_bytes = (ranks - 1) * bitmap, ring_bytes(flags, ranks)
    if longest is not None:
        lists = longest * _list_dtype(blocks).itemsize
        if (ranks - 1) * lists <= min(gather_bytes, sum_bytes):
            return "lists", lists
    # Flags go round a ring; what is gathered goes from each to each, in one round.
    if sum_bytes + 2 * (ranks - 1) * ROUND < gather_bytes + ROUND:
        return "flags", flags
    return "bitmaps", bitmap


def _touched_by_any(mine: Tensor, blocks: int, ctx: ExchangeContext) -> Tensor:
    """Ascending numbers of the blocks that are some rank's, given this one's in order."""
    comm, longest = ctx.comm, None
    if asks_lengths(blocks):
        with ctx.phase("exchange"):
            longest = max(length for (length,) in comm.all_gather_meta([mine.numel()]))
    method, _ = method_of(comm.size, blocks, longest)
    if method == "lists":
        with ctx.phase("exchange"):
            lists = comm.all_gather(mine.to(_list_dtype(blocks)))
            touched: Tensor = torch.unique(torch.cat(lists)).to(torch.int64)  # ascending
        if touched.numel() and not 0 <= int(touched[0]) <= int(touched[-1]) < blocks:
            raise WireFormatError(f"some rank lists a block that is none of these {blocks}")
        return touched
    with ctx.phase("encode"):
        flags = torch.zeros(blocks, dtype=torch.int32, device=mine.device)
        flags[mine] = 1
    if method == "flags":
        with ctx.phase("exchange"):
            return comm.all_reduce(flags.to(_flag_dtype(comm.size))).nonzero().flatten()
    with ctx.phase("encode"):
        bitmap = pack_bits(flags, 1)
    with ctx.phase("exchange"):
        bitmaps = comm.all_gather_equal(bitmap)
    with ctx.phase("decode"):
        return union_of(bitmaps, blocks).nonzero().flatten()


def bits_of(s: Sparse, block: int) -> Tensor:
    """One bit for each block, set where `s`, which may be padded, has an element; as bytes."""
    blocks = block_count(s.numel, block)
    flags = torch.zeros(blocks + 1, dtype=torch.int32, device=s.indices.device)
    flags.index_fill_(0, (s.indices // block).clamp_(max=blocks), 1)
    return pack_bits(flags[:blocks], 1)


def union_of(bitmaps: Tensor, blocks: int) -> Tensor:
    """For each block 1 if it is set in any row, else 0."""
    union = bitmaps[0]
    for other in bitmaps[1:]:
        union = union | other
    # All bits, since looking at the spare ones would make the host wait.
    return unpack_bits(union, 8 * union.numel(), 1)[:blocks]


def _list_dtype(blocks: int) -> torch.dtype:
    return torch.int32 if blocks <= 2**31 else torch.int64


def _flag_dtype(ranks: int) -> torch.dtype:
    """Holds a sum over all ranks."""
    return torch.uint8 if ranks < 256 else torch.int32
