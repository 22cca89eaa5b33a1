"""Selection by hashing on the CPU: survivors are listed, many at a time, and then scattered.

Lists come in order of index, so that in a slot the largest index simply is the last one written.
Scattered one by one, each would wait for a cache line that the elements streaming by have evicted.
"""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels import _threads
from thinwire.kernels._numba import (
    Array,
    Indices,
    add,
    in_range,
    mix,
    offset_of,
    summands,
    view,
)
from thinwire.kernels.addend import Addend
from thinwire.kernels.compact.found import Found
from thinwire.kernels.compact.numba import BLOCK, compact, least, scan
from thinwire.kernels.exact_topk.sample import room
from thinwire.types import PADDING

LIST = 1 << 16  # survivors, in 768 KiB for float32


@njit(cache=True, nogil=True)
def _scatter(
    indices: Indices, survivors: Array, count: int, slots: np.uint64, offset: np.uint64,
    winners: Indices, values: Array,
) -> None:  # fmt: skip
    for i in range(count):
        slot = np.int64(in_range(mix(np.uint64(indices[i]), offset), slots))
        winners[slot], values[slot] = indices[i], survivors[i]


@njit(cache=True, nogil=True)
def _select(
    x: Array, grad: Array | None, velocity: Array | None, factor: Any, clear: bool,
    bad: Array | None, start: int, end: int, limit: Any, slots: np.uint64, offset: np.uint64,
    winners: Indices, values: Array,
) -> None:  # fmt: skip
    room = min(end - start, LIST) + BLOCK
    indices, survivors, count = np.empty(room, np.int64), np.empty(room, x.dtype), 0
    for low in range(start, end, BLOCK):
        block = add(x, grad, velocity, factor, clear, bad, low, min(low + BLOCK, end))
        count = scan(block, low, limit, indices, survivors, count)
        if count > room - BLOCK:
            _scatter(indices, survivors, count, slots, offset, winners, values)
            count = 0
    _scatter(indices, survivors, count, slots, offset, winners, values)


@njit(cache=True, nogil=True)
def _overrule(winners: Indices, values: Array, later: Indices, its_values: Array) -> None:
    for slot in range(winners.size):
        taken = later[slot] >= 0
        winners[slot] = later[slot] if taken else winners[slot]
        values[slot] = its_values[slot] if taken else values[slot]


def hash_select(
    x: Tensor, threshold: Tensor, slots: int, seed: int, addend: Addend | None = None
) -> tuple[Tensor, Tensor]:
    """Each thread fills slots of its own; later pieces have larger indices."""
    source, added = view(x), summands(x, addend)
    rule = (least(threshold), np.uint64(slots), offset_of(seed))

    def work(which: int, first: int, end: int) -> tuple[Indices, Array]:
        winners, values = np.full(slots, -1, np.int64), np.zeros(slots, source.dtype)
        _select(source, *added, first, end, *rule, winners, values)
        return winners, values

    (winners, values), *others = _threads.run(work, _threads.pieces(source.size))
    for later in others:
        _overrule(winners, values, *later)
    return torch.from_numpy(winners), torch.from_numpy(values)


def hash_slots(
    x: Tensor, threshold: Tensor, slots: int, seed: int, addend: Addend | None = None
) -> tuple[Tensor, Tensor]:
    winners, values = hash_select(x, threshold, slots, seed, addend)
    return winners.masked_fill_(winners < 0, PADDING), values


@njit(cache=True, nogil=True)
def _keep_winners(
    indices: Indices, survivors: Array, slots: np.uint64, offset: np.uint64,
    winners: Indices, values: Array,
) -> int:  # fmt: skip
    """Write the last survivor of each slot to `winners` and `values`, in order; how many."""
    slot_of = np.empty(indices.size, np.int64)
    last = np.empty(slots, np.int64)
    for i in range(indices.size):
        slot_of[i] = np.int64(in_range(mix(np.uint64(indices[i]), offset), slots))
        last[slot_of[i]] = i
    kept = 0
    for i in range(indices.size):
        if last[slot_of[i]] == i:
            winners[kept], values[kept] = indices[i], survivors[i]
            kept += 1
    winners[kept:], values[kept:] = PADDING, 0
    return kept


def hash_list(
    x: Tensor, threshold: Tensor, slots: int, seed: int, addend: Addend | None = None
) -> Found:
    """One pass lists the survivors in order; those that lost their slot are left out of the list.

    So nothing is sorted, where slots would have to be. There is room for as many survivors as a
    threshold from a small sample lets through: more take a second pass.
    """
    passing = compact(x, threshold, room(x.numel(), slots), addend)
    if int(passing.count) > passing.capacity:
        passing = compact(x, threshold, int(passing.count))
    survivors = (part.numpy() for part in passing.trim())
    indices, values = np.empty(slots, np.int64), np.empty(slots, view(x).dtype)
    kept = _keep_winners(*survivors, np.uint64(slots), offset_of(seed), indices, values)
    return Found(torch.from_numpy(indices), torch.from_numpy(values), torch.tensor(kept))
