"""Threshold compaction on CUDA: the elements are read once, and listed in order.

One kernel reads (and accumulates) the elements and leaves one bit for each, 1/32 of what it read,
and a count for each tile. A second, small one finds its place in the list from the counts before
it, and lists the bits that are set; the values it fetches one by one, since they are few. No
program waits for another, no tile can overflow, and nothing depends on timing.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._lists import sum_before
from thinwire.kernels._triton import (
    ROW,
    accumulated_tile,
    lowest,
    marks,
    ones,
    summands,
    tiling,
)
from thinwire.kernels.addend import Addend
from thinwire.kernels.compact.found import Found

WARPS = 16
LISTERS = 512  # programs that list: all run at once, each sums up the counts before it only once
LISTED = 1024  # marks that one looks at in a turn
LISTER_WARPS = 4
FETCHED = tl.constexpr(256)


@triton.jit(do_not_specialize=["numel"])
def _mark(x, grad, velocity, factor, bad, threshold, words, numel, ROWS: tl.constexpr):
    """Leave a mark for each row, and behind all of them how many passed in each tile."""
    tile = tl.program_id(0).to(tl.int64)
    word = marks(accumulated_tile(x, grad, velocity, factor, bad, numel, ROWS), threshold)
    tl.store(words + tile * ROWS + tl.arange(0, ROWS), word.to(tl.int32, bitcast=True))
    counts = words + tl.num_programs(0).to(tl.int64) * ROWS
    tl.store(counts + tile, tl.sum(ones(word)))


@triton.jit(do_not_specialize=["tiles", "capacity"])
def _list(
    x, words, tiles, indices, values, count, capacity, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """List this program's share of the tiles behind all that passed in the tiles before."""
    share = tl.cdiv(tiles, tl.num_programs(0))
    first = tl.minimum(tl.program_id(0) * share, tiles)
    end = tl.minimum(first + share, tiles).to(tl.int64) * ROWS
    mine = sum_before(words + tiles.to(tl.int64) * ROWS, first, 2 * BLOCK)
    before = mine
    row = tl.arange(0, BLOCK)
    for start in range(first.to(tl.int64) * ROWS, end, BLOCK):
        word = tl.load(words + start + row, mask=row < end - start, other=0)
        word = word.to(tl.uint32, bitcast=True)
        here = ones(word)
        place = tl.cumsum(here) - here
        room = tl.maximum(tl.minimum(capacity - before, BLOCK * ROW), 0).to(tl.int32)
        for _ in range(tl.max(tl.where(place < room, here, 0))):
            listed = (word != 0) & (place < room)
            at = row * ROW + lowest(word)
            tl.store(indices + before + place, at + start * ROW, mask=listed)
            word &= word - 1
            place += 1
        before += tl.sum(here)
    tl.debug_barrier()  # what one thread listed another fetches: all at once, since memory is far
    for start in range(mine, tl.minimum(before, capacity), FETCHED):
        place = start + tl.arange(0, FETCHED)
        listed = place < tl.minimum(before, capacity)
        index = tl.load(indices + place, mask=listed)
        tl.store(values + place, tl.load(x + index, mask=listed), mask=listed)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(count, before)


def compact(x: Tensor, threshold: Tensor, capacity: int, addend: Addend | None = None) -> Found:
    tiles, rows = tiling(x, WARPS)
    words = torch.empty(tiles * (rows + 1), dtype=torch.int32, device=x.device)
    _mark[(tiles,)](
        x, *summands(x, addend), threshold, words, x.numel(), rows,
        num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    if addend:
        addend.clear_gradient()
    return list_marked(x, words, tiles, rows, capacity)


def list_marked(x: Tensor, words: Tensor, tiles: int, rows: int, capacity: int) -> Found:
    """The elements that have a mark; `words` are the marks, and behind them the tiles' counts."""
    found = Found(
        torch.empty(capacity, dtype=torch.int64, device=x.device),
        torch.empty(capacity, dtype=x.dtype, device=x.device),
        torch.empty((), dtype=torch.int64, device=x.device),
    )
    listed = (found.indices, found.values, found.count, capacity)
    _list[(min(tiles, LISTERS),)](x, words, tiles, *listed, rows, LISTED, num_warps=LISTER_WARPS)
    return found
