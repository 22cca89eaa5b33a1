"""The launches of the grouped selection on CUDA, see `triton.py`."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# What a kernel takes are tensors and numbers.

import triton
import triton.language as tl

from thinwire.kernels._triton import ROW, accumulated, lowest, magnitude_key, marks, ones
from thinwire.kernels.grouped_topk.rounds import (
    BINS,
    INDEX_BITS,
    INDEX_MASK,
    LARGEST,
    chosen_before,
    compared,
    copy_all,
    group_of,
    known,
    open_slots,
    sections,
    span,
    store_magnitude,
    total,
)
from thinwire.kernels.grouped_topk.tables import (
    AFTER,
    BASE,
    FIRST_TILE,
    GIVES,
    GROUP,
    GROUP_FIELDS,
    HIGH,
    LOW,
    NUMBER,
    OUT,
    OWNER,
    PIECE,
    ROOM,
    START,
    TILE_FIELDS,
    TILES,
    K,
)

CLEARED = tl.constexpr(1024)
_SIZES = ["all_groups", "choosing", "tiles", "slots"]


@triton.jit(do_not_specialize=[*_SIZES, "cleared"])
def mark(
    x, grad, velocity, factor, bad, guess, tile_table, scratch,
    all_groups, choosing, tiles, slots, cleared, ROUNDS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Add to a tile, leave its marks and how many they are; and clear a part of the scratch."""
    _, _, _, _, counts, _, words = sections(scratch, all_groups, choosing, tiles, slots, ROUNDS)
    number = tl.program_id(0).to(tl.int64)
    tile = tile_table + number * TILE_FIELDS
    start = tl.multiple_of(tl.load(tile + START), ROW)
    first = tl.load(tile + LOW) - start
    left = tl.load(tile + HIGH) - start
    elements = accumulated(x, grad, velocity, factor, bad, start, left, ROWS, first)
    if number < tiles:
        word = marks(elements, guess + tl.load(tile + GROUP))
        tl.store(words + number * ROWS + tl.arange(0, ROWS), word.to(tl.int32, bitcast=True))
        tl.store(counts + number, tl.sum(ones(word)).to(tl.int64))
    clear(scratch, cleared)


@triton.jit
def clear(scratch, words):
    share = tl.cdiv(words, tl.num_programs(0))
    begin = tl.program_id(0) * share
    end = tl.minimum(begin + share, words)
    for start in range(begin, end, CLEARED):
        at = start + tl.arange(0, CLEARED)
        tl.store(scratch + at, tl.zeros((CLEARED,), tl.int64), mask=at < end)


@triton.jit(do_not_specialize=[*_SIZES, "others"])
def list_marked(
    x, tile_table, groups, names, scratch, all_groups, choosing, tiles, slots, others,
    ROUNDS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """List the candidates of this program's share of the tiles, and open the work on the groups
    that end there. Of groups that give all, find the least magnitude."""
    least, _, passed, _, counts, work, words = sections(
        scratch, all_groups, choosing, tiles, slots, ROUNDS
    )
    share = tl.cdiv(tiles, tl.num_programs(0))
    first = tl.minimum(tl.program_id(0) * share, tiles)
    end = tl.minimum(first + share, tiles)
    before = tl.zeros((), tl.int64)
    if first < end:
        owner = tl.load(tile_table + first * TILE_FIELDS + OWNER)
        its_first = tl.load(groups + owner * GROUP_FIELDS + FIRST_TILE)
        before = total(counts, its_first, first.to(tl.int64), PIECE)
    row = tl.arange(0, ROWS)
    for number in range(first, end):
        tile = tile_table + number * TILE_FIELDS
        owner = tl.load(tile + OWNER)
        group = groups + owner * GROUP_FIELDS
        its_first = tl.load(group + FIRST_TILE)
        before = tl.where(number == its_first, 0, before)
        tl.store(counts + tiles + number, before)
        word = tl.load(words + number * ROWS + row).to(tl.uint32, bitcast=True)
        here = ones(word)
        place = before + (tl.cumsum(here) - here)
        room = tl.load(group + ROOM)
        name = (tl.load(tile + OUT) << INDEX_BITS) + tl.load(tile + START) + row * ROW
        own_names = names + tl.load(group + BASE)
        for _turn in range(tl.max(tl.where(place < room, here, 0))):
            listed = (word != 0) & (place < room)
            tl.store(own_names + place, name + lowest(word), mask=listed)
            word &= word - 1
            place += 1
        before += tl.sum(here)
        if number + 1 == its_first + tl.load(group + TILES):
            open_slots(
                scratch, owner, group, before, passed + owner, passed + choosing + owner, work,
                PIECE,
            )  # fmt: skip
    for number in range(tl.program_id(0), others, tl.num_programs(0)):
        _find_least(x, tile_table + (tiles + number) * TILE_FIELDS, least)


@triton.jit
def _find_least(x, tile, least):
    if tl.load(tile + GIVES) > 0:
        end = tl.load(tile + HIGH)
        for start in range(tl.load(tile + LOW), end, PIECE):
            at = start + tl.arange(0, PIECE)
            value = tl.load(x + at, mask=at < end, other=float("inf"))
            magnitude = (magnitude_key(value) >> 1).to(tl.int64)
            tl.atomic_max(least + tl.load(tile + GROUP), tl.min(magnitude) ^ LARGEST, sem="relaxed")


@triton.jit(do_not_specialize=_SIZES)
def tally(
    x, tile_table, groups, names, candidates, scratch, all_groups, choosing, tiles, slots,
    ROUNDS: tl.constexpr, PLACE: tl.constexpr,
):  # fmt: skip
    """The histogram of the digit at PLACE; the first round also fetches the candidates."""
    _, histograms, passed, states, _, work, _ = sections(
        scratch, all_groups, choosing, tiles, slots, ROUNDS
    )
    bins = tl.arange(0, BINS)
    for slot in range(tl.program_id(0).to(tl.int64), tl.load(scratch), tl.num_programs(0)):
        owner, group = group_of(groups, work, slot)
        piece = slot - tl.load(passed + choosing + owner)
        histogram = histograms + owner * (ROUNDS * BINS)
        state = states + owner * (2 * (ROUNDS + 1))
        prefix, _rank = known(histogram, state, tl.load(group + K), piece == 0, PLACE)
        pointer, begin, end, _out, listed = span(
            x, candidates, tile_table, group, tl.load(passed + owner), piece
        )
        tallied = tl.zeros((BINS,), tl.int32)
        for start in range(begin, end, PIECE):
            at = start + tl.arange(0, PIECE)
            source = at
            if PLACE == 0:
                if listed:
                    base = tl.load(group + BASE)
                    name = tl.load(names + base + at, mask=at < end, other=0)
                    source = name & INDEX_MASK
                    value = tl.load(x + source, mask=at < end, other=0)
                    tl.store(candidates + base + at, value, mask=at < end)
                else:
                    value = tl.load(x + at, mask=at < end, other=0)
            else:
                value = tl.load(pointer + at, mask=at < end, other=0)
            key = magnitude_key(value) >> (8 * (ROUNDS - 1 - PLACE))
            agrees = ((key >> 8) == prefix.to(key.dtype)) & (at < end)
            if tl.max(agrees.to(tl.int32)) > 0:
                tallied += tl.histogram((key & (BINS - 1)).to(tl.int32), BINS, mask=agrees)
        tl.atomic_add(histogram + PLACE * BINS + bins, tallied, mask=tallied > 0, sem="relaxed")


@triton.jit(do_not_specialize=_SIZES)
def count(
    x, tile_table, groups, candidates, scratch, kth_magnitudes, how_many,
    all_groups, choosing, tiles, slots, ROUNDS: tl.constexpr,
):  # fmt: skip
    """For each slot how many are larger than the k-th, and how many equal; for each group both
    what it is and how many reached the guess."""
    _, histograms, passed, states, _, work, _ = sections(
        scratch, all_groups, choosing, tiles, slots, ROUNDS
    )
    for slot in range(tl.program_id(0).to(tl.int64), tl.load(scratch), tl.num_programs(0)):
        owner, group = group_of(groups, work, slot)
        piece = slot - tl.load(passed + choosing + owner)
        histogram = histograms + owner * (ROUNDS * BINS)
        state = states + owner * (2 * (ROUNDS + 1))
        kth, _ties = known(histogram, state, tl.load(group + K), piece == 0, ROUNDS)
        reached = tl.load(passed + owner)
        pointer, begin, end, _out, _listed = span(x, candidates, tile_table, group, reached, piece)
        larger = tl.zeros((PIECE,), tl.int32)
        equal = tl.zeros((PIECE,), tl.int32)
        for start in range(begin, end, PIECE):
            _value, are_larger, are_equal = compared(pointer, start + tl.arange(0, PIECE), end, kth)
            larger += are_larger.to(tl.int32)
            equal += are_equal.to(tl.int32)
        tl.store(work + slots + slot, tl.sum(larger).to(tl.int64))
        tl.store(work + 2 * slots + slot, tl.sum(equal).to(tl.int64))
        if piece == 0:
            number = tl.load(group + NUMBER)
            store_magnitude(kth_magnitudes + number, kth >> 1)
            tl.store(how_many + number, reached)


@triton.jit(do_not_specialize=[*_SIZES, "others"])
def emit(
    x, tile_table, groups, names, candidates, scratch, indices, values, kth_magnitudes, how_many,
    all_groups, choosing, tiles, slots, others, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Write what is chosen of each slot, and all of the groups that give all."""
    least, _, passed, states, counts, work, _ = sections(
        scratch, all_groups, choosing, tiles, slots, ROUNDS
    )
    for slot in range(tl.program_id(0).to(tl.int64), tl.load(scratch), tl.num_programs(0)):
        owner, group = group_of(groups, work, slot)
        its_first = tl.load(passed + choosing + owner)
        state = states + owner * (2 * (ROUNDS + 1)) + 2 * ROUNDS
        ties = tl.load(state + 1)
        equal = total(work + 2 * slots, its_first, slot, PIECE)
        listed = total(work + slots, its_first, slot, PIECE) + tl.minimum(equal, ties)
        pointer, begin, end, out, named = span(
            x, candidates, tile_table, group, tl.load(passed + owner), slot - its_first
        )
        own_names = names + tl.load(group + BASE)
        _write(
            pointer, own_names, begin, end, out, named, tl.load(state), listed,
            tl.maximum(ties - equal, 0), indices, values,
        )  # fmt: skip
    for number in range(tl.program_id(0), others, tl.num_programs(0)):
        tile = tile_table + (tiles + number) * TILE_FIELDS
        group = tl.load(tile + GROUP)
        gives = tl.load(tile + GIVES)
        tl.store(how_many + group, gives)
        if gives > 0:
            store_magnitude(kth_magnitudes + group, tl.load(least + group) ^ LARGEST)
            out = tl.load(tile + OUT)
            after = tl.load(tile + AFTER)
            if after >= 0:
                out += chosen_before(
                    candidates, groups, tl.load(passed), tl.load(passed + 1), states, counts, work,
                    slots, after, ROUNDS,
                )  # fmt: skip
            copy_all(x, tl.load(tile + LOW), tl.load(tile + HIGH), out, indices, values)
        else:
            tl.store(kth_magnitudes + group, float("inf"))


@triton.jit
def _write(
    pointer, names, begin, end, out, named, kth, listed, room, indices, values
):  # fmt: skip
    """Those larger than the k-th, and of those equal the first `room`, behind the `listed`."""
    lane = tl.arange(0, PIECE)
    for start in range(begin, end, PIECE):
        at = start + lane
        value, larger, equal = compared(pointer, at, end, kth)
        open_here = tl.minimum(room, PIECE).to(tl.int32)
        both = larger.to(tl.int32) + (equal.to(tl.int32) << 16)  # two counts in one word
        if tl.max(both) > 0:
            before = tl.cumsum(both) - both
            taken = larger | (equal & ((before >> 16) < open_here))
            place = listed + out + (before & 0xFFFF) + tl.minimum(before >> 16, open_here)
            index = at
            if named:
                name = tl.load(names + at, mask=taken, other=0)
                index = name & INDEX_MASK
                place += (name.to(tl.uint64, bitcast=True) >> INDEX_BITS).to(tl.int64)
            tl.store(indices + place, index, mask=taken)
            tl.store(values + place, value, mask=taken)
            here = tl.sum(both)
            equals = tl.minimum(here >> 16, open_here)
            listed += (here & 0xFFFF) + equals
            room -= equals


@triton.jit(do_not_specialize=[*_SIZES, "cleared", "capacity"])
def adopt(
    count, capacity, groups, scratch, all_groups, choosing, tiles, slots, cleared,
    ROUNDS: tl.constexpr,
):  # fmt: skip
    """In the place of marking and listing: candidates of the only group that are at hand."""
    _, _, passed, _, _, work, _ = sections(scratch, all_groups, choosing, tiles, slots, ROUNDS)
    clear(scratch, cleared)
    tl.debug_barrier()
    reached = tl.load(count)
    reached = tl.where(reached <= capacity, reached, 0)  # 0: not all are listed
    open_slots(scratch, 0, groups, reached, passed, passed + 1, work, PIECE)
