"""Bloom filters on the CPU."""

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from thinwire.kernels._numba import mix, offset_of
from thinwire.kernels.bloom.filter import Filter, drawn_order

ZERO, ONE, SIX, LOW6 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)
HALF, LOW32 = np.uint64(32), np.uint64((1 << 32) - 1)
UNASKED = 4  # bits that are looked at before it is asked whether all were set
CHUNK = 1 << 20


@njit(cache=True, nogil=True)
def _insert(
    rows: NDArray[np.uint64],
    offset: np.uint64,
    size: np.uint64,
    hashes: int,
    words: NDArray[np.uint64],
) -> None:
    for row in rows:
        mixed = mix(row, offset)
        a, b = mixed & LOW32, (mixed >> HALF) | ONE
        for _ in range(hashes):
            bit = (a * size) >> HALF
            words[bit >> SIX] |= ONE << (bit & LOW6)
            a = (a + b) & LOW32


@njit(cache=True, nogil=True)
def _positives(
    first: int,
    last: int,
    offset: np.uint64,
    size: np.uint64,
    hashes: int,
    words: NDArray[np.uint64],
    out: NDArray[np.int64],
) -> int:
    """Half of the bits are set, so that asking after each would be a guess for the processor."""
    found = 0
    unasked = min(UNASKED, hashes)
    for row in range(first, last):
        mixed = mix(np.uint64(row), offset)
        a, b = mixed & LOW32, (mixed >> HALF) | ONE
        held = ONE
        for _ in range(unasked):
            bit = (a * size) >> HALF
            held &= words[bit >> SIX] >> (bit & LOW6)
            a = (a + b) & LOW32
        turn = unasked
        while held and turn < hashes:
            bit = (a * size) >> HALF
            held &= words[bit >> SIX] >> (bit & LOW6)
            a = (a + b) & LOW32
            turn += 1
        if held:
            out[found] = row
            found += 1
    return found


@njit(cache=True, nogil=True)
def _probes(
    rows: NDArray[np.uint64],
    offset: np.uint64,
    size: np.uint64,
    out: NDArray[np.int64],
) -> None:
    """Each row's bits, each bit once: repeats are -1."""
    for i in range(rows.size):
        mixed = mix(rows[i], offset)
        a, b = mixed & LOW32, (mixed >> HALF) | ONE
        for turn in range(out.shape[1]):
            bit = np.int64((a * size) >> HALF)
            for before in range(turn):
                if out[i, before] == bit:
                    bit = np.int64(-1)
                    break
            out[i, turn] = bit
            a = (a + b) & LOW32


@njit(cache=True, nogil=True)
def _group(bits: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each bit's positives begin in one array, and that array, in the order of `bits`."""
    starts = np.zeros(size + 1, dtype=np.int64)
    for row in range(bits.shape[0]):
        for turn in range(bits.shape[1]):
            if bits[row, turn] >= 0:
                starts[bits[row, turn] + 1] += 1
    starts = np.cumsum(starts)
    free = starts[:-1].copy()
    members = np.empty(starts[-1], dtype=np.int64)
    for row in range(bits.shape[0]):
        for turn in range(bits.shape[1]):
            bit = bits[row, turn]
            if bit >= 0:
                members[free[bit]] = row
                free[bit] += 1
    return starts, members


@njit(cache=True, nogil=True)
def _resolve(
    starts: NDArray[np.int64],
    members: NDArray[np.int64],
    sets: NDArray[np.int64],
    count: int,
    chosen: NDArray[np.bool_],
) -> None:
    ends = starts[1:].copy()
    starts = starts[:-1].copy()
    total, active = 0, sets.size
    while total < count and active:
        kept = 0
        for s in range(active):
            bit = sets[s]
            while starts[bit] < ends[bit] and chosen[members[starts[bit]]]:
                starts[bit] += 1
            if starts[bit] < ends[bit]:
                if total == count:
                    return
                chosen[members[starts[bit]]] = True
                starts[bit] += 1
                total += 1
                sets[kept] = bit
                kept += 1
        active = kept


def insert(rows: Tensor, size: int, hashes: int, salt: int) -> Tensor:
    """See the package."""
    words = torch.zeros((size + 63) // 64, dtype=torch.int64)
    view = words.numpy().view(np.uint64)
    _insert(rows.numpy().view(np.uint64), offset_of(salt), np.uint64(size), hashes, view)
    return words


def positives(filter: Filter, rows: int, limit: int) -> Tensor:
    """See the package."""
    words, offset, size = filter.words.numpy().view(np.uint64), *_numbers(filter)
    found: list[Tensor] = []
    total = 0
    chunk = np.empty(min(rows, CHUNK), dtype=np.int64)
    for first in range(0, rows if filter.size else 0, CHUNK):
        if total > limit:
            break
        last = min(rows, first + CHUNK)
        n = _positives(first, last, offset, size, filter.hashes, words, chunk)
        found.append(torch.from_numpy(chunk[:n].copy()))
        total += n
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


def resolve(filter: Filter, found: Tensor, count: int) -> Tensor:
    """See the package."""
    in_order = found[drawn_order(found, filter.salt)]
    bits = np.empty((found.numel(), filter.hashes), dtype=np.int64)
    _probes(in_order.numpy().view(np.uint64), *_numbers(filter), bits)
    starts, members = _group(bits, filter.size)
    sizes = np.diff(starts)
    sets = np.argsort(sizes, kind="stable")
    sets = sets[np.searchsorted(sizes[sets], 1) :]
    chosen = np.zeros(found.numel(), dtype=np.bool_)
    _resolve(starts, members, sets, count, chosen)
    return in_order[torch.from_numpy(chosen)].sort().values


def _numbers(filter: Filter) -> tuple[np.uint64, np.uint64]:
    return offset_of(filter.salt), np.uint64(filter.size)
