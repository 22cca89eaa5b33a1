"""Device functions of the grouped selection: its scratch memory, and what a piece of work is.

A *slot* is a piece of work: some candidates of a group that has them, or a tile of one that does
not. Which group has the slot is entered when it is known how many of it passed; in which order the
groups come is a matter of timing, and changes nothing.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# What a device function takes are tiles and pointers.

import triton
import triton.language as tl

from thinwire.kernels._triton import magnitude_key
from thinwire.kernels.grouped_topk.tables import (
    BASE,
    FIRST_TILE,
    GROUP_FIELDS,
    HIGH,
    LOW,
    OUT,
    PIECE,
    ROOM,
    TILE_FIELDS,
    TILES,
    K,
)

BINS = tl.constexpr(256)  # of a digit of eight bits
INDEX_BITS = tl.constexpr(32)  # of a candidate's name; above them how many of others come before
INDEX_MASK = tl.constexpr((1 << 32) - 1)
LARGEST = tl.constexpr((1 << 63) - 1)


def scratch_words(
    groups: int, choosing: int, tiles: int, slots: int, rows: int, rounds: int
) -> tuple[int, int]:
    """How many int64 the scratch memory has, and how many of them are cleared, the first ones."""
    cleared = 1 + groups + choosing * rounds * (BINS.value // 2)
    kept = choosing * (2 + 2 * (rounds + 1)) + 2 * tiles + 3 * slots
    return cleared + kept + tiles * rows // 2, cleared


@triton.jit
def sections(scratch, groups, choosing, tiles, slots, ROUNDS: tl.constexpr):
    """The parts of the scratch memory, of int64 but for the histograms and the marks.

    The first word counts the slots in use. Then
    - for each group LARGEST less its least magnitude, if it gives all;
    - for each that chooses a histogram a round; then how many passed, and its first slot; then a
      prefix of its k-th key and the rank behind it, for each round;
    - for each tile how many passed, and how many in those of its group before;
    - for each slot its group, and how many there are larger and equal; and the marks.
    """
    least = scratch + 1
    histograms = least + groups
    passed = histograms + choosing.to(tl.int64) * (ROUNDS * (BINS // 2))
    states = passed + 2 * choosing
    counts = states + choosing * (2 * (ROUNDS + 1))
    work = counts + 2 * tiles
    words = work + 3 * slots
    histograms = histograms.to(tl.pointer_type(tl.int32))
    return least, histograms, passed, states, counts, work, words.to(tl.pointer_type(tl.int32))


@triton.jit
def total(numbers, begin, end, BLOCK: tl.constexpr):
    """numbers[begin] + … + numbers[end - 1], of int64."""
    sums = tl.zeros((BLOCK,), tl.int64)
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        sums += tl.load(numbers + at, mask=at < end, other=0)
    return tl.sum(sums)


@triton.jit
def held(group, passed):
    """Whether the guess held: at least k reached it, and all of them are listed."""
    return (passed >= tl.load(group + K)) & (passed <= tl.load(group + ROOM))


@triton.jit
def open_slots(scratch, owner, group, count, passed, slots, work, BLOCK: tl.constexpr):
    """Enter the work on a group, of which `count` passed."""
    candidates = (count + PIECE - 1) // PIECE
    pieces = tl.where(held(group, count), candidates, tl.load(group + TILES))
    slot = tl.atomic_add(scratch, pieces, sem="relaxed")
    tl.store(passed, count)
    tl.store(slots, slot)
    for start in range(0, pieces, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(work + slot + at, tl.zeros((BLOCK,), tl.int64) + owner, mask=at < pieces)


@triton.jit
def digit(tally, rank):
    """The digit of the element of that rank from the top, and its rank among those with it."""
    bins = tl.arange(0, BINS)
    reaching = tl.sum(tally) - tl.cumsum(tally) + tally
    found = tl.max(tl.where(reaching >= rank, bins, 0))
    return found, rank - tl.sum(tl.where(bins > found, tally, 0))


@triton.jit
def known(histogram, state, k, opening, PLACES: tl.constexpr):
    """The first PLACES digits of a group's k-th key, and the rank among those that have them.

    All but the last digit were kept by the round before; whoever has the group's first slot
    (`opening`) keeps these.
    """
    prefix, rank = tl.zeros((), tl.int64), k
    if PLACES > 0:
        if PLACES > 1:
            prefix = tl.load(state + 2 * (PLACES - 1))
            rank = tl.load(state + 2 * (PLACES - 1) + 1)
        tally = tl.load(histogram + (PLACES - 1) * BINS + tl.arange(0, BINS))
        found, rank = digit(tally.to(tl.uint32, bitcast=True).to(tl.int64), rank)
        prefix = (prefix << 8) + found
        if opening:
            tl.store(state + 2 * PLACES, prefix)
            tl.store(state + 2 * PLACES + 1, rank)
    return prefix, rank


@triton.jit
def span(x, candidates, tiles, group, passed, piece):
    """What a slot is about: the elements from `begin` to `end` of what is pointed to.

    Also how many elements of others come before a tile's, and whether these are candidates.
    """
    listed = held(group, passed)
    if listed:
        begin = piece * PIECE
        end = tl.minimum(begin + PIECE, passed)
        pointer = candidates + tl.load(group + BASE)
        out = begin * 0
    else:
        tile = tiles + (tl.load(group + FIRST_TILE) + piece) * TILE_FIELDS
        begin = tl.load(tile + LOW)
        end = tl.load(tile + HIGH)
        pointer = x
        out = tl.load(tile + OUT)
    return pointer, begin, end, out, listed


@triton.jit
def compared(pointer, at, end, kth):
    """The elements `at` these places before `end`: which are larger than the k-th, which equal."""
    value = tl.load(pointer + at, mask=at < end, other=0)
    key = magnitude_key(value)
    return value, (key > kth.to(key.dtype)) & (at < end), (key == kth.to(key.dtype)) & (at < end)


@triton.jit
def chosen_before(
    candidates, group, passed, slot, state, counts, work, slots, tiles_before, ROUNDS: tl.constexpr
):
    """How many the only group that chooses has in its first `tiles_before` tiles."""
    kth = tl.load(state + 2 * ROUNDS)
    ties = tl.load(state + 2 * ROUNDS + 1)
    whole = tiles_before
    larger = tl.zeros((), tl.int64)
    equal = tl.zeros((), tl.int64)
    if held(group, passed):
        tiles = tl.load(group + TILES)
        before = tl.load(counts + tiles + tiles_before, mask=tiles_before < tiles, other=0)
        before = tl.where(tiles_before < tiles, before, passed)
        whole = before // PIECE
        at = whole * PIECE + tl.arange(0, PIECE)
        _value, are_larger, are_equal = compared(candidates, at, before, kth)
        larger += tl.sum(are_larger.to(tl.int32))
        equal += tl.sum(are_equal.to(tl.int32))
    larger += total(work + slots, slot, slot + whole, PIECE)
    equal += total(work + 2 * slots, slot, slot + whole, PIECE)
    return larger + tl.minimum(equal, ties)


@triton.jit
def group_of(groups, work, slot):
    """The number of a slot's group among those that choose, and what is known of it."""
    owner = tl.load(work + slot)
    return owner, groups + owner * GROUP_FIELDS


@triton.jit
def copy_all(x, begin, end, out, indices, values):
    for start in range(begin, end, PIECE):
        at = start + tl.arange(0, PIECE)
        tl.store(indices + out + (at - begin), at, mask=at < end)
        value = tl.load(x + at, mask=at < end, other=0)
        tl.store(values + out + (at - begin), value, mask=at < end)


@triton.jit
def store_magnitude(pointer, magnitude):
    """Its bits are given, as int64."""
    if pointer.dtype.element_ty == tl.float64:
        tl.store(pointer, (magnitude & LARGEST).to(tl.float64, bitcast=True))
    else:
        tl.store(pointer, magnitude.to(tl.int32).to(tl.float32, bitcast=True))
