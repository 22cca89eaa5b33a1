"""Count sketches on the CPU: one loop in the order of the elements, a thread for each row.

Only rows and elements to be read are shared out to threads: sums never are, so that their order
does not depend on the number of threads.
"""

from itertools import chain
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels import _threads
from thinwire.kernels._numba import ONE, Array, Words, in_range, mix, offset_of
from thinwire.kernels.count_sketch import reference

PIECE = 4096  # elements
PRIME, DEGREES = np.uint64(reference.PRIME), reference.DEGREES


@njit(cache=True, nogil=True)
def _polynomial(x: np.uint64, key: Words) -> np.uint64:
    value: np.uint64 = key[0]
    for j in range(1, DEGREES):
        value = (value * x + key[j]) % PRIME
    return value


@njit(cache=True, nogil=True)
def _place(x: np.uint64, buckets: np.uint64, key: Words) -> tuple[np.uint64, np.uint64]:
    """The bucket of an index, and 1 if its sign is -1. A key of one word is `mix64`'s offset."""
    if key.size == 1:
        h = mix(x, key[0])
        return in_range(h, buckets), h & ONE
    at, sign = _polynomial(x, key[:DEGREES]), _polynomial(x, key[DEGREES:])
    return at * buckets // PRIME, sign & ONE


@njit(cache=True, nogil=True)
def _project(indices: Array, values: Array, row: Array, key: Words) -> None:
    buckets = np.uint64(row.size)
    for i in range(indices.size):
        bucket, negative = _place(np.uint64(indices[i]), buckets, key)
        row[bucket] += -values[i] if negative else values[i]


@njit(cache=True, nogil=True)
def _estimate(row: Array, first: int, key: Words, out: Array) -> None:
    """A row's estimates of the elements from `first` on."""
    buckets = np.uint64(row.size)
    for i in range(out.size):
        bucket, negative = _place(np.uint64(first + i), buckets, key)
        out[i] = -row[bucket] if negative else row[bucket]


@njit(cache=True, nogil=True)
def _middle_of_three(estimates: Array, out: Array) -> None:
    """As `_middle`, without a branch that would be guessed wrong half of the time."""
    for i in range(out.size):
        a, b, c = estimates[0, i], estimates[1, i], estimates[2, i]
        low, high = (a, b) if a <= b else (b, a)
        below = c if low <= c else low
        out[i] = high if high <= c else below


@njit(cache=True, nogil=True)
def _middle(estimates: Array, out: Array) -> None:
    """The median of each column. An insertion sort: stable, and there are but a few rows."""
    rows = estimates.shape[0]
    column = np.empty(rows, estimates.dtype)
    for i in range(out.size):
        for j in range(rows):
            value, k = estimates[j, i], j
            while k > 0 and column[k - 1] > value:
                column[k] = column[k - 1]
                k -= 1
            column[k] = value
        out[i] = column[rows // 2]


@njit(cache=True, nogil=True)
def _recover(table: Array, first: int, keys: Words, median: bool, inverse: Any, out: Array) -> None:
    """Piece by piece, so that all rows' estimates of one stay in the cache."""
    rows = table.shape[0]
    if rows == 1:
        _estimate(table[0], first, keys[0], out)
        return
    estimates = np.empty((rows, PIECE), table.dtype)
    for start in range(0, out.size, PIECE):
        piece = out[start : start + PIECE]
        for row in range(rows):
            _estimate(table[row], first + start, keys[row], estimates[row, : piece.size])
        if median and rows == 3:
            _middle_of_three(estimates, piece)
            continue
        if median:
            _middle(estimates, piece)
            continue
        for i in range(piece.size):
            total = estimates[0, i]
            for row in range(1, rows):
                total += estimates[row, i]
            piece[i] = total * inverse


def project(
    indices: Tensor, values: Tensor, rows: int, buckets: int, seed: int, four_wise: bool = False
) -> Tensor:
    table = torch.zeros(rows, buckets, dtype=values.dtype)
    at, x, out = indices.numpy(), values.detach().numpy(), table.numpy()
    keys = _keys(seed, rows, four_wise)

    def work(_: int, first: int, end: int) -> None:
        for row in range(first, end):
            _project(at, x, out[row], keys[row])

    _threads.run(work, _shares(rows))
    return table


def recover(table: Tensor, numel: int, seed: int, decode: str, four_wise: bool = False) -> Tensor:
    estimates = torch.empty(numel, dtype=table.dtype)
    x, out, keys = table.numpy(), estimates.numpy(), _keys(seed, table.shape[0], four_wise)
    inverse = out.dtype.type(1 / table.shape[0])

    def work(_: int, first: int, end: int) -> None:
        _recover(x, first, keys, decode == "median", inverse, out[first:end])

    _threads.run(work, _threads.pieces(numel))
    return estimates


def _shares(rows: int) -> list[tuple[int, int]]:
    """[0, rows) as (first, end), one for each of torch's threads at most."""
    count = min(rows, torch.get_num_threads())
    return [(rows * i // count, rows * (i + 1) // count) for i in range(count)]


def _keys(seed: int, rows: int, four_wise: bool) -> Words:
    """What each row's hash is made of: what `rng.mix64` adds for its seed, or coefficients."""
    if four_wise:
        drawn = [[*chain(*reference.coefficients(seed + row))] for row in range(rows)]
        return np.array(drawn, np.uint64)
    return np.array([[offset_of(seed + row)] for row in range(rows)])
