"""Device functions of batched decoding: the parts' elements in a tile of the target, added up.

The elements of all parts that lie in a tile stand side by side in lanes, part after part. Each
leaves its lane's number in the cell of its place, and takes what was there: so it learns who came
before it. Where no more than two share a place, the second adds the first's value to its own, and
is stored after it; of two summands the order does not matter.

Where three or more share one, their order is made certain: each bids with its lane for the cell,
the lowest wins, and leaves. The first winner of a place adds up; the others' values follow in the
order in which they win, which is that of the parts. A maximum is the same in any order, so that
timing decides nothing.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# What a device function takes are tiles and pointers.

import triton
import triton.language as tl

FAR = tl.constexpr((1 << 63) - 1)


@triton.jit(do_not_specialize=["parts", "steps", "tiles", "numel"])
def enter(table, parts, steps, tiles, numel, entries, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """entries[tile, part]: the part's first element that is not below the tile.

    One binary search each, all at once: a kernel of its own, or every tile would wait for its own.
    The last tile ends with the target: what is beyond is padding.
    """
    part = tl.program_id(1)
    tile = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.minimum(tile * TILE, numel)
    indices = tl.load(table + part).to(tl.pointer_type(tl.int64))
    low = tl.zeros((BLOCK,), tl.int64)
    high = low + tl.load(table + 2 * parts + part)
    for _ in range(steps):
        middle = (low + high) // 2
        below = tl.load(indices + middle, mask=low < high, other=FAR) < begin
        low = tl.where(below, middle + 1, low)
        high = tl.where(below, high, middle)
    tl.store(entries + tile * parts + part, low, mask=tile <= tiles)


@triton.jit
def elements(
    table, parts, entries, base,
    VALUE: tl.constexpr, PARTS: tl.constexpr, LOG_PARTS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """The elements of a tile: their places from `base` on, values, and which lanes have one.

    None has if the tile is crowded, with more elements than lanes: the last returned says so.
    `entries` are the tile's.
    """
    part = tl.arange(0, PARTS)
    first = tl.load(entries + part, mask=part < parts, other=0)
    end = tl.load(entries + parts + part, mask=part < parts, other=0)
    indices = tl.load(table + part, mask=part < parts, other=0)
    values = tl.load(table + parts + part, mask=part < parts, other=0)
    count = (end - first).to(tl.int32)
    upto = tl.cumsum(count, 0)
    lane = tl.arange(0, LANES)
    mine = tl.zeros((LANES,), tl.int32)  # the part of each lane: how many end before it
    for i in tl.static_range(LOG_PARTS):
        half = PARTS >> (i + 1)
        mine += tl.where(tl.gather(upto, mine + (half - 1), 0) <= lane, half, 0)
    number = tl.gather(first - (upto - count), mine, 0) + lane
    total = tl.sum(count)
    inside = lane < tl.where(total > LANES, 0, total)
    index = tl.gather(indices, mine, 0).to(tl.pointer_type(tl.int64)) + number
    place = (tl.load(index, mask=inside, other=0) - base).to(tl.int32)
    value = tl.load(
        tl.gather(values, mine, 0).to(tl.pointer_type(VALUE)) + number, mask=inside, other=0
    )
    return place, value, inside, total > LANES


@triton.jit
def add_up(cells, place, value, inside, LANES: tl.constexpr):
    """The sum at each place; which lanes to store, and which to store after these.

    The cells of the tile, of 4 or 8 bytes each, are zero before. After it those of the places of
    the lanes are anything.
    """
    WORDS: tl.constexpr = cells.dtype.element_ty.primitive_bitwidth // 32
    cell = cells.to(tl.pointer_type(tl.int32)) + place * WORDS
    before = tl.atomic_xchg(cell, tl.arange(0, LANES) + 1, mask=inside, sem="relaxed")
    before = tl.where(inside, before, 0)
    total = value + 0.0  # -0.0 as the first of a sum is 0.0
    earlier = tl.maximum(before - 1, 0)
    now, later = inside & (before == 0), before > 0
    if any(later & (tl.gather(before, earlier, 0) > 0)):
        tl.debug_barrier()
        tl.store(cell, tl.zeros_like(before), mask=inside)
        tl.debug_barrier()
        total, now = _in_turns(cell, value, inside, LANES)
        later = before < 0  # none
    else:
        total = tl.where(later, total + tl.gather(value, earlier, 0), total)
    return total, now, later


@triton.jit
def _in_turns(cell, value, inside, LANES: tl.constexpr):
    """The sum at each place, in the order of the lanes, and which lanes hold one."""
    _, owns = _bid(cell, inside, inside, LANES)
    left = inside & ~owns
    total = value + 0.0
    while any(left):
        highest, won = _bid(cell, left, inside, LANES)
        follower = tl.gather(value, LANES - tl.maximum(highest, 1), 0)
        total = tl.where(owns & (highest > 0), total + follower, total)
        left = left & ~won
    return total, owns


@triton.jit
def _bid(cell, left, inside, LANES: tl.constexpr):
    """The highest bid at each place, that of the lowest lane left there, and who made it."""
    bid = LANES - tl.arange(0, LANES)
    tl.atomic_max(cell, bid, mask=left, sem="relaxed")
    tl.debug_barrier()
    highest = tl.load(cell, mask=inside, other=0, cache_modifier=".cg")
    won = left & (highest == bid)
    tl.debug_barrier()
    tl.store(cell, tl.zeros_like(bid), mask=won)
    tl.debug_barrier()
    return highest, won


@triton.jit
def any(lanes):
    return tl.max(lanes.to(tl.int32), axis=0) > 0


@triton.jit
def add_one_by_one(
    table, parts, entries, base, cells, VALUE: tl.constexpr, LANES: tl.constexpr
):  # fmt: skip
    """The sums of a crowded tile, into its cells: part after part, with a barrier between two."""
    for part in range(parts):
        indices = tl.load(table + part).to(tl.pointer_type(tl.int64))
        values = tl.load(table + parts + part).to(tl.pointer_type(VALUE))
        end = tl.load(entries + parts + part)
        for start in range(tl.load(entries + part), end, LANES):
            at = start + tl.arange(0, LANES)
            cell = cells + (tl.load(indices + at, mask=at < end, other=0) - base)
            value = tl.load(values + at, mask=at < end, other=0).to(cells.dtype.element_ty)
            tl.store(cell, tl.load(cell, mask=at < end, other=0) + value, mask=at < end)
        tl.debug_barrier()
