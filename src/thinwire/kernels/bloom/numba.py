"""Bloom filters on the CPU."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels._numba import (
    LOW6,
    ONE,
    SIX,
    WORD,
    Array,
    Indices,
    Words,
    mix,
    offset_of,
    trailing_zeros,
    words_of,
)
from thinwire.kernels.bitmap import words_for
from thinwire.kernels.bloom.filter import Filter, drawn_order

HALF, LOW32 = np.uint64(32), np.uint64((1 << 32) - 1)
CHUNK = 1 << 20  # rows, a multiple of 64
ALL = np.uint64((1 << 64) - 1)


@njit(cache=True, nogil=True)
def _hashes(row: np.uint64, offset: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The two numbers of a row's group."""
    mixed = mix(row >> SIX, offset)
    return mixed & LOW32, (mixed >> HALF) | ONE


@njit(cache=True, nogil=True)
def _insert(rows: Words, offset: np.uint64, size: np.uint64, hashes: int, words: Words) -> None:
    for row in rows:
        a, b = _hashes(row, offset)
        for _ in range(hashes):
            bit = (a * size) >> HALF
            words[bit >> SIX] |= ONE << ((bit + row) & LOW6)
            a = (a + b) & LOW32


@njit(cache=True, nogil=True)
def _positives(
    first: int, last: int, offset: np.uint64, size: np.uint64, hashes: int, words: Words,
    out: Indices,
) -> int:  # fmt: skip
    """A group of 64 rows at a time, in the bits of a word; `first` is a multiple of 64.

    All of a group's words are looked at: asking in between whether any row is left would be a
    guess for the processor, and the words come several at a time.
    """
    listed = 0
    for row in range(first, last, 64):
        a, b = _hashes(np.uint64(row), offset)
        held = ALL if last - row >= 64 else (ONE << np.uint64(last - row)) - ONE
        for _ in range(hashes):
            bit = (a * size) >> HALF
            word, turn = words[bit >> SIX], bit & LOW6
            held &= (word >> turn) | (word << ((WORD - turn) & LOW6))
            a = (a + b) & LOW32
        while held:
            out[listed] = row + np.int64(trailing_zeros(held))
            listed += 1
            held &= held - ONE
    return listed


@njit(cache=True, nogil=True)
def _probes(rows: Words, offset: np.uint64, size: np.uint64, out: Indices) -> None:
    """Each row's bits, each bit once: repeats are -1."""
    for i in range(rows.size):
        a, b = _hashes(rows[i], offset)
        for turn in range(out.shape[1]):
            group = (a * size) >> HALF
            bit = np.int64((group & ~LOW6) | ((group + rows[i]) & LOW6))
            for before in range(turn):
                if out[i, before] == bit:
                    bit = np.int64(-1)
                    break
            out[i, turn] = bit
            a = (a + b) & LOW32


@njit(cache=True, nogil=True)
def _group(bits: Indices, size: int) -> tuple[Indices, Indices]:
    """Where each bit's positives begin in one array, and that array, in the order of `bits`."""
    starts = np.zeros(size + 1, dtype=np.int64)
    for bit in bits.flat:
        if bit >= 0:
            starts[bit + 1] += 1
    starts = np.cumsum(starts)
    free = starts[:-1].copy()
    members = np.empty(starts[-1], dtype=np.int64)
    for row in range(bits.shape[0]):
        for bit in bits[row]:
            if bit >= 0:
                members[free[bit]] = row
                free[bit] += 1
    return starts, members


@njit(cache=True, nogil=True)
def _resolve(starts: Indices, members: Indices, sets: Indices, count: int, chosen: Array) -> None:
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
    words = torch.zeros(words_for(size), dtype=torch.int64)
    _insert(words_of(rows), offset_of(salt), np.uint64(size), hashes, words_of(words))
    return words


def positives(filter: Filter, rows: int, limit: int) -> Tensor:
    words, offset, size = words_of(filter.words), *_numbers(filter)
    parts: list[Tensor] = []
    total = 0
    chunk = np.empty(min(rows, CHUNK), dtype=np.int64)
    for first in range(0, rows if filter.size else 0, CHUNK):
        if total > limit:
            break
        last = min(rows, first + CHUNK)
        n = _positives(first, last, offset, size, filter.hashes, words, chunk)
        parts.append(torch.from_numpy(chunk[:n].copy()))
        total += n
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)


def resolve(filter: Filter, rows: Tensor, count: int) -> Tensor:
    in_order = rows[drawn_order(rows, filter.salt)]
    bits = np.empty((rows.numel(), filter.hashes), dtype=np.int64)
    _probes(words_of(in_order), *_numbers(filter), bits)
    starts, members = _group(bits, filter.size)
    sizes = np.diff(starts)
    sets = np.argsort(sizes, kind="stable")
    sets = sets[np.searchsorted(sizes[sets], 1) :]
    chosen = np.zeros(rows.numel(), dtype=np.bool_)
    _resolve(starts, members, sets, count, chosen)
    return in_order[torch.from_numpy(chosen)].sort().values


def _numbers(filter: Filter) -> tuple[np.uint64, np.uint64]:
    return offset_of(filter.salt), np.uint64(filter.size)
