"""Vectors of bits on CUDA, in words of 32 bits.

Positions are listed in two launches over the same shares of the words, one for each program: the
first leaves how many bits each share has, from which each program of the second knows its place.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import ROW, lowest, ones

SHARES = tl.constexpr(1024)  # at most: so many counts are added up at a glance
FEW = 1 << 17  # words, for which all programs look at a few in one turn
SET = 512


def block_of(words: int) -> int:
    """How many of so many words a program looks at in a turn."""
    return 128 if words <= FEW else 1024


def shares_of(words: int) -> int:
    """How many programs share so many words."""
    return min(int(SHARES.value), max(1, -(-words // block_of(words))))


@triton.jit
def share_of(size, BLOCK: tl.constexpr):
    """This program's share of `size` words: its first, and its end."""
    share = tl.cdiv(tl.cdiv(size, BLOCK), tl.num_programs(0)).to(tl.int64) * BLOCK
    first = tl.program_id(0) * share
    return first, tl.minimum(first + share, size)


@triton.jit
def sum_before(sums):
    """The sum of all that the programs before this one have left."""
    which = tl.arange(0, SHARES)
    return tl.sum(tl.load(sums + which, mask=which < tl.program_id(0), other=0))


@triton.jit
def set_bit(words, position, size, mask):
    """Set the bit at each int64 `position`; those outside of [0, size) are left out."""
    one = tl.full((), 1, tl.int32) << (position & 31).to(tl.int32)
    inside = (position >= 0) & (position < size) & mask
    tl.atomic_or(words + (position >> 5), one, mask=inside, sem="relaxed")


@triton.jit(do_not_specialize=["count", "size"])
def _set(positions, words, count, size, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    set_bit(words, tl.load(positions + i, mask=i < count, other=0), size, i < count)


@triton.jit(do_not_specialize=["size"])
def _count(words, counts, size, BLOCK: tl.constexpr):
    first, end = share_of(size, BLOCK)
    tally = tl.zeros((BLOCK,), tl.int64)
    for start in range(first, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        word = tl.load(words + at, mask=at < end, other=0)
        tally += ones(word.to(tl.uint32, bitcast=True))
    tl.store(counts + tl.program_id(0), tl.sum(tally))


@triton.jit
def _field(low, i, bits, mask):
    """Number `i` of the fields of `bits` bits (at most 62) in int64 words."""
    start = i * bits
    shift = (start & 63).to(tl.uint64)
    first = tl.load(low + (start >> 6), mask=mask, other=0).to(tl.uint64, bitcast=True)
    goes_on = mask & ((start & 63) + bits > 64)
    more = tl.load(low + (start >> 6) + 1, mask=goes_on, other=0).to(tl.uint64, bitcast=True)
    field = (first >> shift) | ((more << 1) << (63 - shift))  # one shift of 64 bits is none
    return field.to(tl.int64) & ((tl.full((), 1, tl.int64) << bits) - 1)


@triton.jit(do_not_specialize=["size", "capacity", "low_bits"])
def _list(words, counts, out, size, capacity, low, low_bits, BLOCK: tl.constexpr):
    """List the positions; or, with fields `low`, the numbers of Elias and Fano's split."""
    first, end = share_of(size, BLOCK)
    before = sum_before(counts)
    row = tl.arange(0, BLOCK)
    for start in range(first, end, BLOCK):
        word = tl.load(words + start + row, mask=row < end - start, other=0)
        word = word.to(tl.uint32, bitcast=True)
        here = ones(word)
        place = before + tl.cumsum(here) - here
        for _ in range(tl.max(here)):
            listed = (word != 0) & (place < capacity)
            number = (start + row) * ROW + lowest(word)
            if low is not None:
                number = ((number - place) << low_bits) | _field(low, place, low_bits, listed)
            tl.store(out + place, number, mask=listed)
            word &= word - 1
            place += 1
        before += tl.sum(here)


def zeroed(bits: int, device: torch.device) -> Tensor:
    """The int64 words of so many bits, none set."""
    return torch.zeros((bits + 63) // 64, dtype=torch.int64, device=device)


def list_marks(
    marks: Tensor, counts: Tensor, capacity: int, low: Tensor | None = None, low_bits: int = 0
) -> Tensor:
    """Of int32 `marks`, of which each share has `counts` bits, the first `capacity` positions."""
    size = marks.numel()
    out = torch.empty(capacity, dtype=torch.int64, device=marks.device)
    if capacity:
        grid = (counts.numel(),)
        _list[grid](marks, counts, out, size, capacity, low, low_bits, block_of(size))
    return out


def _counts(marks: Tensor) -> Tensor:
    size = marks.numel()
    counts = torch.empty(shares_of(size), dtype=torch.int64, device=marks.device)
    _count[(counts.numel(),)](marks, counts, size, block_of(size))
    return counts


def set_bits(positions: Tensor, size: int) -> Tensor:
    words = zeroed(size, positions.device)
    if positions.numel():
        grid = (triton.cdiv(positions.numel(), SET),)
        _set[grid](positions, words.view(torch.int32), positions.numel(), size, SET)
    return words


def count_bits(words: Tensor) -> int:
    return int(_counts(words.view(torch.int32)).sum())


def positions(words: Tensor, count: int) -> tuple[Tensor, Tensor]:
    return listed(words, count)


def listed(
    words: Tensor, count: int, low: Tensor | None = None, low_bits: int = 0
) -> tuple[Tensor, Tensor]:
    """The first `count` positions, or the numbers with fields `low`; and how many there are."""
    marks = words.view(torch.int32)
    counts = _counts(marks)
    return list_marks(marks, counts, count, low, low_bits), counts.sum()
