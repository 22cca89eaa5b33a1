"""Selection by hashing on CUDA: one pass, an atomic maximum for each survivor, and a fetch.

The hash takes some forty instructions, too many to spend on every element; only marked ones are
hashed.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import (
    ROW,
    accumulated_tile,
    hash_to_range,
    lowest,
    marks,
    ones,
    summands,
    tiling,
)
from thinwire.kernels.addend import Addend
from thinwire.kernels.compact.found import Found
from thinwire.kernels.compact.triton import WARPS as LIST_WARPS
from thinwire.kernels.compact.triton import list_marked
from thinwire.rng import Seed, offset_on
from thinwire.types import PADDING

WARPS = 4
BLOCK = 256  # slots a program
_PADDING = tl.constexpr(PADDING)


@triton.jit(do_not_specialize=["slots", "numel"])
def _claim(
    x, grad, velocity, factor, bad, threshold, winners, slots, offset, numel, ROWS: tl.constexpr
):
    """Every survivor of this tile writes its index to its slot, if none larger is there."""
    word = marks(accumulated_tile(x, grad, velocity, factor, bad, numel, ROWS), threshold)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    mixed_with = tl.load(offset)
    for _ in range(tl.max(ones(word))):
        index = row * ROW + lowest(word)
        slot = hash_to_range(index, slots, mixed_with)
        tl.atomic_max(winners + slot, index, mask=word != 0, sem="relaxed")
        word &= word - 1


@triton.jit(do_not_specialize=["slots"])
def _fetch(x, winners, values, slots, EMPTY: tl.constexpr, BLOCK: tl.constexpr):
    """The values of the winners, and what stands for none of them."""
    slot = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    winner = tl.load(winners + slot, mask=slot < slots, other=-1)
    value = tl.load(x + winner, mask=winner >= 0, other=0)
    tl.store(values + slot, value, mask=slot < slots)
    if EMPTY != -1:
        none = tl.full((BLOCK,), EMPTY, tl.int64)
        tl.store(winners + slot, none, mask=(slot < slots) & (winner < 0))


@triton.jit(do_not_specialize=["slots"])
def _mark_winners(winners, words, slots, BLOCK: tl.constexpr):
    """Set the bit of each winner; no two have one."""
    slot = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    winner = tl.load(winners + slot, mask=slot < slots, other=-1)
    bit = tl.full((BLOCK,), 1, tl.uint32) << (winner % ROW).to(tl.uint32)
    bit = bit.to(tl.int32, bitcast=True)
    tl.atomic_or(words + winner // ROW, bit, mask=winner >= 0, sem="relaxed")


@triton.jit(do_not_specialize=["tiles"])
def _count_marks(words, tiles, ROWS: tl.constexpr):
    """How many bits are set in a tile, behind all of them."""
    tile = tl.program_id(0).to(tl.int64)
    word = tl.load(words + tile * ROWS + tl.arange(0, ROWS)).to(tl.uint32, bitcast=True)
    tl.store(words + tiles.to(tl.int64) * ROWS + tile, tl.sum(ones(word)))


@triton.jit(do_not_specialize=["slots"])
def _pad(indices, values, count, slots, BLOCK: tl.constexpr):
    """What is behind the list."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    behind = (place >= tl.load(count)) & (place < slots)
    tl.store(indices + place, tl.full((BLOCK,), _PADDING, tl.int64), mask=behind)
    tl.store(values + place, tl.zeros((BLOCK,), values.dtype.element_ty), mask=behind)


def hash_select(
    x: Tensor, threshold: Tensor, slots: int, seed: Seed, addend: Addend | None = None
) -> tuple[Tensor, Tensor]:
    return _fetched(x, _winners(x, threshold, slots, seed, addend), empty=-1)


def hash_slots(
    x: Tensor, threshold: Tensor, slots: int, seed: Seed, addend: Addend | None = None
) -> tuple[Tensor, Tensor]:
    return _fetched(x, _winners(x, threshold, slots, seed, addend), empty=PADDING)


def _fetched(x: Tensor, winners: Tensor, empty: int) -> tuple[Tensor, Tensor]:
    """The winners of all slots, `empty` where there is none, and their values."""
    slots = winners.numel()
    values = torch.empty(slots, dtype=x.dtype, device=x.device)
    _fetch[(triton.cdiv(slots, BLOCK),)](x, winners, values, slots, empty, BLOCK, num_warps=4)
    return winners, values


def hash_list(
    x: Tensor, threshold: Tensor, slots: int, seed: Seed, addend: Addend | None = None
) -> Found:
    """Winners leave marks as in a compaction, whose second half lists them: nothing is sorted."""
    winners = _winners(x, threshold, slots, seed, addend)
    tiles, rows = tiling(x, LIST_WARPS)
    words = torch.zeros(tiles * (rows + 1), dtype=torch.int32, device=x.device)
    grid = (triton.cdiv(slots, BLOCK),)
    _mark_winners[grid](winners, words, slots, BLOCK, num_warps=4)
    _count_marks[(tiles,)](words, tiles, rows, num_warps=4)
    found = list_marked(x, words, tiles, rows, slots)
    _pad[grid](found.indices, found.values, found.count, slots, BLOCK, num_warps=4)
    return found


def _winners(x: Tensor, threshold: Tensor, slots: int, seed: Seed, addend: Addend | None) -> Tensor:
    winners = torch.full((slots,), -1, dtype=torch.int64, device=x.device)
    tiles, rows = tiling(x, WARPS)
    offset = offset_on(x.device, seed)
    _claim[(tiles,)](
        x, *summands(x, addend), threshold, winners, slots, offset, x.numel(), rows,
        num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    if addend:
        addend.clear_gradient()
    return winners
