"""The k largest magnitudes of each group on the CPU: one pass over all groups, then few elements.

The pass adds, and lists what reaches its group's guess; lists come in order of index, so that what
a group's own are stand side by side. Groups then choose one after the other in compiled code:
among those listed or, where the guess did not hold, a small group among all of its own. A group
that has very many to choose among is chosen from as `exact_topk` does it.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels import _threads
from thinwire.kernels._numba import Array, Indices, add, summands, view
from thinwire.kernels.addend import Addend
from thinwire.kernels.compact import Found
from thinwire.kernels.compact.numba import BLOCK, add_and_scan
from thinwire.kernels.exact_topk import Largest
from thinwire.kernels.exact_topk.numba import among, by_sample, kept
from thinwire.kernels.exact_topk.sample import rooms
from thinwire.kernels.grouped_topk.groups import Chosen, Groups

LARGE = 1 << 17  # to choose among: from here on its own threads and passes are worth their start
BINS, LOW8 = 256, np.uint64(255)
S8 = np.uint64(8)


class Plan(NamedTuple):
    """What the compiled code needs to know of `Groups`; by group, but for the runs."""

    runs: Indices  # start, end and group of each
    counts: Indices
    sizes: Indices
    rooms: Indices  # for how many candidates there is room: none where nothing is chosen from
    firsts: Indices  # where a group's elements begin
    offsets: Indices  # where its chosen ones lie, group after group; one more at the end
    choosing: Indices  # the groups that choose, in the order in which they lie
    small: Array  # whether it lies in one piece and is not large


@lru_cache(maxsize=64)
def plan(groups: Groups) -> Plan:
    lying = dict.fromkeys(group for _, _, group in groups.runs)
    choosing = [group for group in lying if groups.chooses(group)]
    runs = np.array(groups.runs, np.int64).reshape(-1, 3)
    counts, sizes = (np.array(each, np.int64) for each in (groups.counts, groups.sizes))
    room = np.zeros_like(counts)
    room[choosing] = rooms([(groups.sizes[g], groups.counts[g]) for g in choosing])
    firsts, pieces = np.zeros_like(counts), np.zeros_like(counts)
    for start, _, group in reversed(groups.runs):
        firsts[group] = start
        pieces[group] += 1
    offsets = np.concatenate(([0], np.cumsum(counts)))
    small = (pieces == 1) & (sizes < LARGE)
    return Plan(runs, counts, sizes, room, firsts, offsets, np.array(choosing, np.int64), small)


@njit(cache=True, nogil=True)
def _pass(
    x: Array, grad: Array | None, velocity: Array | None, factor: Any, clear: bool,
    bad: Array | None, first: int, end: int, runs: Indices, limits: Array, rooms: Indices,
    passed: Indices, indices: Indices, values: Array,
) -> Any:  # fmt: skip
    """Add the elements from `first` to `end`, and list candidates; how many are listed.

    `passed` counts them by group, also those for which there was no room.
    """
    listed = 0
    begin = np.searchsorted(runs[:, 1], first, side="right")
    for run in range(begin, runs.shape[0]):
        start, stop, group = runs[run]
        start, stop = max(start, first), min(stop, end)
        if start >= stop:
            break
        room, count = rooms[group], passed[group]
        # A group's own part of the list: it may go on from an earlier run, where its list ended.
        base = listed - min(count, room)
        own_indices, own_values = indices[base : base + room], values[base : base + room]
        if room:
            count = add_and_scan(
                x, grad, velocity, factor, clear, bad, start, stop, limits[group], own_indices,
                own_values, count,
            )  # fmt: skip
        elif grad is not None:
            for low in range(start, stop, BLOCK):
                add(x, grad, velocity, factor, clear, bad, low, min(low + BLOCK, stop))
        passed[group] = count
        listed = base + min(count, room)
    return listed


@njit(cache=True, nogil=True)
def kth_magnitude(bits: Array, k: int, tally: Indices) -> tuple[Any, Any]:
    """The bits of the k-th magnitude, and how many of its equals are among the k largest."""
    width = bits.itemsize * 8
    without_sign = (np.uint64(1) << np.uint64(width - 1)) - np.uint64(1)
    known, ties = np.uint64(0), k
    for shift in range(width - 8, -1, -8):
        tally[:] = 0
        low = np.uint64(shift)
        for i in range(bits.size):
            word = (np.uint64(bits[i]) & without_sign) >> low
            if word >> S8 == known:
                tally[word & LOW8] += 1
        digit = BINS - 1
        while tally[digit] < ties:
            ties -= tally[digit]
            digit -= 1
        known = (known << S8) | np.uint64(digit)
    return known, ties


@njit(cache=True, nogil=True)
def _choose(
    bits: Array, listed: Indices, listed_bits: Array, begins: Indices, passed: Indices,
    choosing: Indices, small: Array, counts: Indices, sizes: Indices, rooms: Indices,
    firsts: Indices, offsets: Indices, picked: Indices, picked_bits: Array, kth_bits: Array,
    left: Array,
) -> None:  # fmt: skip
    """What each group chose, and its k-th magnitude; which are left to be chosen from apart."""
    tally = np.zeros(BINS, np.int64)
    without_sign = (np.uint64(1) << np.uint64(bits.itemsize * 8 - 1)) - np.uint64(1)
    for group in choosing:
        k, begin = counts[group], begins[group]
        held = k <= passed[group] <= min(rooms[group], LARGE)
        if held:
            own = listed_bits[begin : begin + passed[group]]
        elif small[group]:
            own = bits[firsts[group] : firsts[group] + sizes[group]]
        else:
            left[group] = True
            continue
        kth, ties = kth_magnitude(own, k, tally)
        kth_bits[group] = kth
        at = offsets[group]
        for i in range(own.size):
            word = np.uint64(own[i]) & without_sign
            tied = word == kth
            if word > kth or (tied and ties):
                picked[at] = listed[begin + i] if held else firsts[group] + i
                picked_bits[at] = own[i]
                at += 1
                ties -= tied


@njit(cache=True, nogil=True)
def _assemble(
    x: Array, runs: Indices, counts: Indices, sizes: Indices, offsets: Indices, picked: Indices,
    its_values: Array, kth: Array, indices: Indices, values: Array,
) -> None:  # fmt: skip
    """What was picked, and all of the groups that give all, in the order of the whole tensor."""
    cursor, at = offsets.copy(), 0
    for run in range(runs.shape[0]):
        start, stop, group = runs[run]
        if counts[group] == sizes[group]:
            for i in range(start, stop):
                indices[at], values[at] = i, x[i]
                kth[group] = min(kth[group], abs(x[i]))
                at += 1
            continue
        last, here = offsets[group] + counts[group], cursor[group]
        while here < last and picked[here] < stop:
            indices[at], values[at] = picked[here], its_values[here]
            at += 1
            here += 1
        cursor[group] = here


def grouped_topk(x: Tensor, groups: Groups, guess: Tensor, addend: Addend | None = None) -> Chosen:
    planned, source = plan(groups), view(x)
    listed, found, begins, passed = _candidates(x, planned, guess, addend)
    kth = np.full(guess.numel(), np.inf, source.dtype)
    picked, its_values = np.empty(groups.total, np.int64), np.empty(groups.total, source.dtype)
    bits, left = f"u{source.itemsize}", np.zeros(kth.size, np.bool_)
    _choose(
        source.view(bits), listed.numpy(), view(found).view(bits), begins, passed,
        planned.choosing, planned.small, planned.counts, planned.sizes, planned.rooms,
        planned.firsts, planned.offsets, picked, its_values.view(bits), kth.view(bits), left,
    )  # fmt: skip
    chosen_by: dict[int, Largest | None] = {}
    for group in map(int, np.flatnonzero(left)):
        own = slice(begins[group], begins[group] + min(passed[group], planned.rooms[group]))
        candidates = Found(listed[own], found[own], torch.tensor(passed[group]))
        chosen_by[group] = among(candidates, groups.counts[group])
    # Last of all those whose guess did not hold: they list anew, in the same memory.
    for group, chosen in chosen_by.items():
        place = slice(planned.offsets[group], planned.offsets[group + 1])
        largest = chosen or _among_all(x, groups, group)
        picked[place], its_values[place], kth[group] = largest
    indices, values = torch.empty(groups.total, dtype=torch.int64), x.new_empty(groups.total)
    _assemble(
        source, planned.runs, planned.counts, planned.sizes, planned.offsets, picked,
        its_values, kth, indices.numpy(), view(values),
    )  # fmt: skip
    given = np.where(planned.rooms > 0, passed, planned.counts)
    return Chosen(indices, values, torch.from_numpy(kth), torch.from_numpy(given))


def _candidates(
    x: Tensor, planned: Plan, guess: Tensor, addend: Addend | None
) -> tuple[Tensor, Tensor, Indices, Indices]:
    """What reached the guesses; where each group's own begin; and how many they were.

    The first thread lists in memory that is kept, as in `exact_topk`, and others beside it.
    """
    source, added, most = view(x), summands(x, addend), int(planned.rooms.sum())
    limits = np.maximum(view(guess), np.nextafter(source.dtype.type(0), source.dtype.type(1)))
    at_hand = kept(most, x.dtype)

    def work(which: int, first: int, end: int) -> tuple[Tensor, Tensor, Indices]:
        indices, values = at_hand
        if which:
            room = min(most, end - first)
            indices, values = indices.new_empty(room), values.new_empty(room)
        passed = np.zeros_like(planned.counts)
        listed = _pass(
            source, *added, first, end, planned.runs, limits, planned.rooms, passed,
            indices.numpy(), view(values),
        )  # fmt: skip
        return indices[:listed], values[:listed], passed

    lists = _threads.run(work, _threads.pieces(x.numel()))
    passed = np.sum([each[2] for each in lists], axis=0)
    listed = np.sum([np.minimum(each[2], planned.rooms) for each in lists], axis=0)
    begins = np.zeros_like(passed)
    begins[planned.choosing] = np.cumsum(listed[planned.choosing]) - listed[planned.choosing]
    if len(lists) == 1:
        return *lists[0][:2], begins, passed
    indices = torch.cat([each[0] for each in lists])
    return indices, torch.cat([each[1] for each in lists]), begins, passed


def _among_all(x: Tensor, groups: Groups, group: int) -> Largest:
    """What a large group chooses from all of its elements, and its k-th magnitude."""
    runs = [(start, end) for start, end, whose in groups.runs if whose == group]
    own = x[slice(*runs[0])] if len(runs) == 1 else torch.cat([x[slice(*run)] for run in runs])
    places, values, kth = by_sample(own, groups.counts[group])
    starts, lengths = (np.array(each) for each in zip(*((s, e - s) for s, e in runs), strict=True))
    before = np.cumsum(lengths) - lengths  # of the group's own, those in the runs before
    run = np.searchsorted(before, places.numpy(), side="right") - 1
    return places + torch.from_numpy((starts - before)[run]), values, kth
