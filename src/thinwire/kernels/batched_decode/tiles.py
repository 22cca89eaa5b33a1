"""Device functions of batched decoding: the parts' elements in a tile of the target, added up.

The elements of all parts are read at once, each into a lane. Those with the same index agree on one
lane to add up in: all write their lane's number to one place, and who wins does not matter. Losers
do so once more; where nobody loses twice, elements have two summands at most, whose order does not
matter either. Else they are added one part after the other, with a barrier between two. So timing
decides nothing, and no atomics are needed.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# What a device function takes are tiles and pointers.

import triton
import triton.language as tl

FAN = tl.constexpr(16)  # places a search looks at in one step
FAR = tl.constexpr((1 << 63) - 1)


@triton.jit
def enter(table, parts, steps, start, PARTS: tl.constexpr):
    """The first element of each part whose index is not below `start`."""
    part = tl.arange(0, PARTS)
    indices = tl.load(table + part, mask=part < parts, other=0).to(tl.pointer_type(tl.int64))
    left = tl.load(table + 2 * parts + part, mask=part < parts, other=0)
    first = tl.zeros_like(left)
    for _ in range(steps):
        stride = left // (FAN + 1) + 1
        probe = stride[:, None] * (tl.arange(0, FAN) + 1)[None, :] - 1
        at = indices[:, None] + (first[:, None] + probe)
        below = tl.load(at, mask=probe < left[:, None], other=FAR) < start
        passed = tl.sum(below.to(tl.int64), axis=1) * stride
        first += passed
        left = tl.minimum(left - passed, stride - 1)
    return first


@triton.jit
def read(
    table, parts, first, base, at, stop,
    VALUE: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The parts' next elements in [at, stop), as far as there are lanes for all: up to `limit`.

    Returns their places from `base` on, values, which lanes have one, the limit, and who is next.
    Addresses are looked up anew each time: they would take many registers.
    """
    part = tl.arange(0, PARTS)
    indices = tl.load(table + part, mask=part < parts, other=0).to(tl.pointer_type(tl.int64))
    values = tl.load(table + parts + part, mask=part < parts, other=0).to(tl.pointer_type(VALUE))
    left = tl.load(table + 2 * parts + part, mask=part < parts, other=0) - first
    lanes = tl.arange(0, WIDTH)[None, :]
    there = lanes < tl.minimum(left, WIDTH).to(tl.int32)[:, None]
    index = tl.load((indices + first)[:, None] + lanes, mask=there, other=FAR)
    length = (stop - base).to(tl.int32)
    place = tl.minimum(index - base, length.to(tl.int64)).to(tl.int32)
    last = tl.max(tl.where(place < length, place, -1), axis=1)
    crowded = tl.sum((place < length).to(tl.int32), axis=1) == WIDTH
    high = tl.min(tl.where(crowded, last + 1, length), axis=0)
    inside = place < high
    value = tl.load((values + first)[:, None] + lanes, mask=inside, other=0)
    first += tl.sum(inside.to(tl.int32), axis=1)
    return place, value, inside, base + high, first


@triton.jit
def any(lanes):
    return tl.max(tl.max(lanes.to(tl.int32), axis=1), axis=0) > 0


@triton.jit
def add_up(
    place, value, inside, parts, map, runners_up, sums, PARTS: tl.constexpr, WIDTH: tl.constexpr
):
    """The sum of each lane that is to hold one, which lanes these are, and all lanes' numbers.

    The map holds -1 before and names each place's lane after; `clear` it before the next call.
    """
    part = tl.arange(0, PARTS)[:, None]
    lane = part * WIDTH + tl.arange(0, WIDTH)[None, :]
    total = value.to(sums.dtype.element_ty) + 0.0  # -0.0 as the first of a sum is 0.0
    tl.store(map + place, lane.to(tl.int16), mask=inside)
    tl.debug_barrier()
    owner = tl.load(map + place, mask=inside, other=0).to(tl.int32)
    lost = inside & (owner != lane)
    if any(lost):
        tl.store(sums + lane, total, mask=inside)
        tl.store(runners_up + owner, lane.to(tl.int16), mask=lost)
        tl.debug_barrier()
        third = lost & (tl.load(runners_up + owner, mask=lost, other=0).to(tl.int32) != lane)
        if any(third):
            tl.store(sums + lane, tl.zeros_like(total), mask=inside)
            tl.debug_barrier()
            for p in range(parts):
                mine = inside & (part == p)
                so_far = tl.load(sums + owner, mask=mine, other=0)
                tl.store(sums + owner, so_far + total, mask=mine)
                tl.debug_barrier()
        else:  # of two summands the order does not matter
            so_far = tl.load(sums + owner, mask=lost, other=0)
            tl.store(sums + owner, so_far + total, mask=lost)
        tl.debug_barrier()
        total = tl.load(sums + lane, mask=inside, other=0)
    tl.debug_barrier()
    return total, inside & (owner == lane), lane


@triton.jit
def dense(map, sums, places):
    """The sum at each of these places of the tile, zero where there is none."""
    owner = tl.load(map + places).to(tl.int32)
    return tl.load(sums + owner, mask=owner >= 0, other=0)


@triton.jit
def clear(map, place, inside):
    """Before a barrier, since some write next."""
    tl.store(map + place, tl.full(place.shape, -1, tl.int16), mask=inside)
    tl.debug_barrier()


@triton.jit
def workspace(map, sums, TILE: tl.constexpr, LANES: tl.constexpr):
    """This program's own map, empty, and room for runners-up and for sums, a lane each."""
    map += tl.program_id(0).to(tl.int64) * (TILE + LANES)
    sums += tl.program_id(0).to(tl.int64) * LANES
    tl.store(map + tl.arange(0, TILE), tl.full([TILE], -1, tl.int16))
    tl.debug_barrier()
    return map, map + TILE, sums


@triton.jit
def number(table, parts, i, TYPE: tl.constexpr):
    """Setting number i, which lies in the table as a float64: arguments would be float32."""
    return tl.load(table + 3 * parts + i).to(tl.float64, bitcast=True).to(TYPE)


@triton.jit
def load(source, places, low, high, whole, TYPE: tl.constexpr):
    """Elements of a tile at those places that lie between `low` and `high`."""
    if whole:
        loaded = tl.load(source + places)
    else:
        loaded = tl.load(source + places, mask=(places >= low) & (places < high), other=0)
    return loaded.to(TYPE)


@triton.jit
def store(target, places, low, high, whole, elements):
    """The counterpart of `load`."""
    elements = elements.to(target.dtype.element_ty)
    if whole:  # without a mask, which would forbid 16-byte stores
        tl.store(target + places, elements)
    else:
        tl.store(target + places, elements, mask=(places >= low) & (places < high))


@triton.jit
def clear_between(target, low, high, TILE: tl.constexpr, STRIP: tl.constexpr):
    """Zeros from `low` to `high` of a tile. In strips, where masks would take many registers."""
    if high - low == TILE:
        tl.store(target + tl.arange(0, TILE), tl.zeros([TILE], target.dtype.element_ty))
    else:
        for strip in range(0, TILE, STRIP):
            places = strip + tl.arange(0, STRIP)
            zeros = tl.zeros([STRIP], target.dtype.element_ty)
            tl.store(target + places, zeros, mask=(places >= low) & (places < high))


@triton.jit
def settle(target, place, total, inside, scale, parts, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """`add_up`, with the target's own elements for map, runners-up and sums, and stored scaled."""
    NAME: tl.constexpr = tl.int32 if target.dtype.element_ty == tl.float32 else tl.int64
    part = tl.arange(0, PARTS)[:, None]
    lane = (part * WIDTH + tl.arange(0, WIDTH)[None, :]).to(NAME)
    names = target.to(tl.pointer_type(NAME)) + place
    cells = target + place
    tl.store(names, lane, mask=inside)
    tl.debug_barrier()
    lost = inside & (tl.load(names, mask=inside, other=0) != lane)
    tl.debug_barrier()
    if any(lost):
        tl.store(names, lane, mask=lost)
        tl.debug_barrier()
        runner_up = tl.load(names, mask=inside, other=0)
        tl.debug_barrier()
        if any(lost & (runner_up != lane)):
            tl.store(cells, tl.zeros_like(total), mask=inside)
            tl.debug_barrier()
            for p in range(parts):
                mine = inside & (part == p)
                tl.store(cells, tl.load(cells, mask=mine, other=0) + total, mask=mine)
                tl.debug_barrier()
            total = tl.load(cells, mask=inside, other=0)
            tl.debug_barrier()  # lanes of one element write the same product
            tl.store(cells, total * scale, mask=inside)
        else:  # of two summands the order does not matter
            alone = runner_up == lane
            tl.store(cells, tl.where(alone, total * scale, total), mask=inside & ~lost)
            tl.debug_barrier()
            other = tl.load(cells, mask=lost, other=0)
            tl.store(cells, (other + total) * scale, mask=lost)
    else:
        tl.store(cells, total * scale, mask=inside)
