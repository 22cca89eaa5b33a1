"""Selection by hashing on the CPU: survivors are listed, many at a time, and then scattered.

Lists come in order of index, so that in a slot the largest index simply is the last one written.
Scattered one by one, each would wait for a cache line that the elements streaming by have evicted.
"""

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from thinwire.kernels import _threads
from thinwire.kernels._mix import in_range, mix, offset_of
from thinwire.kernels.compact.numba import BLOCK, add, least, scan, view

Array = NDArray[Any]
Indices = NDArray[np.int64]

LIST = 1 << 16  # survivors, in 768 KiB for float32


@njit(cache=True, nogil=True)
def _scatter(
    indices: Indices, found: Array, count: int, slots: np.uint64, offset: np.uint64,
    winners: Indices, values: Array,
) -> None:  # fmt: skip
    for i in range(count):
        slot = np.int64(in_range(mix(np.uint64(indices[i]), offset), slots))
        winners[slot], values[slot] = indices[i], found[i]


@njit(cache=True, nogil=True)
def _select(
    x: Array, grad: Array, clear: bool, start: int, limit: Any, slots: np.uint64,
    offset: np.uint64, winners: Indices, values: Array,
) -> None:  # fmt: skip
    """An empty `grad` is not added."""
    room = min(x.size, LIST) + BLOCK
    indices, found, count = np.empty(room, np.int64), np.empty(room, x.dtype), 0
    for first in range(0, x.size, BLOCK):
        block = x[first : first + BLOCK]
        if grad.size:
            add(block, grad[first : first + BLOCK], clear)
        count = scan(block, start + first, limit, indices, found, count)
        if count > room - BLOCK:
            _scatter(indices, found, count, slots, offset, winners, values)
            count = 0
    _scatter(indices, found, count, slots, offset, winners, values)


@njit(cache=True, nogil=True)
def _overrule(winners: Indices, values: Array, later: Indices, its_values: Array) -> None:
    for slot in range(winners.size):
        taken = later[slot] >= 0
        winners[slot] = later[slot] if taken else winners[slot]
        values[slot] = its_values[slot] if taken else values[slot]


def hash_select(x: Tensor, threshold: Tensor, slots: int, seed: int) -> tuple[Tensor, Tensor]:
    """See the package."""
    return accumulate_hash(x, x[:0], threshold, slots, seed, clear=False)


def accumulate_hash(
    residual: Tensor, grad: Tensor, threshold: Tensor, slots: int, seed: int, clear: bool
) -> tuple[Tensor, Tensor]:
    """See the package. Each thread fills slots of its own; later pieces have larger indices."""
    x, g = view(residual), view(grad)
    rule = (least(threshold), np.uint64(slots), offset_of(seed))

    def work(which: int, first: int, end: int) -> tuple[Indices, Array]:
        winners, values = np.full(slots, -1, np.int64), np.zeros(slots, x.dtype)
        _select(x[first:end], g[first:end], clear, first, *rule, winners, values)
        return winners, values

    (winners, values), *others = _threads.run(work, _threads.pieces(x.size))
    for later in others:
        _overrule(winners, values, *later)
    return torch.from_numpy(winners), torch.from_numpy(values)
