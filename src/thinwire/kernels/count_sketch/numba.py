"""Count sketches on the CPU: one loop in the order of the elements, a thread for each row.

Only rows and elements to be read are shared out to threads: sums never are, so that their order
does not depend on the number of threads.
"""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels import _threads
from thinwire.kernels._numba import ONE, Array, Words, in_range, mix, offset_of

PIECE = 4096  # elements


@njit(cache=True, nogil=True)
def _project(indices: Array, values: Array, row: Array, offset: np.uint64) -> None:
    buckets = np.uint64(row.size)
    for i in range(indices.size):
        h = mix(np.uint64(indices[i]), offset)
        bucket = in_range(h, buckets)
        row[bucket] += -values[i] if h & ONE else values[i]


@njit(cache=True, nogil=True)
def _estimate(row: Array, first: int, offset: np.uint64, out: Array) -> None:
    """A row's estimates of the elements from `first` on."""
    buckets = np.uint64(row.size)
    for i in range(out.size):
        h = mix(np.uint64(first + i), offset)
        value = row[in_range(h, buckets)]
        out[i] = -value if h & ONE else value


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
def _recover(
    table: Array, first: int, offsets: Array, median: bool, inverse: Any, out: Array
) -> None:
    """Piece by piece, so that all rows' estimates of one stay in the cache."""
    rows = table.shape[0]
    if rows == 1:
        _estimate(table[0], first, offsets[0], out)
        return
    estimates = np.empty((rows, PIECE), table.dtype)
    for start in range(0, out.size, PIECE):
        piece = out[start : start + PIECE]
        for row in range(rows):
            _estimate(table[row], first + start, offsets[row], estimates[row, : piece.size])
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


def project(indices: Tensor, values: Tensor, rows: int, buckets: int, seed: int) -> Tensor:
    table = torch.zeros(rows, buckets, dtype=values.dtype)
    at, x, out = indices.numpy(), values.detach().numpy(), table.numpy()
    offsets = _offsets(seed, rows)

    def work(_: int, first: int, end: int) -> None:
        for row in range(first, end):
            _project(at, x, out[row], offsets[row])

    _threads.run(work, _shares(rows))
    return table


def recover(table: Tensor, numel: int, seed: int, decode: str) -> Tensor:
    estimates = torch.empty(numel, dtype=table.dtype)
    x, out, offsets = table.numpy(), estimates.numpy(), _offsets(seed, table.shape[0])
    inverse = out.dtype.type(1 / table.shape[0])

    def work(_: int, first: int, end: int) -> None:
        _recover(x, first, offsets, decode == "median", inverse, out[first:end])

    _threads.run(work, _threads.pieces(numel))
    return estimates


def _shares(rows: int) -> list[tuple[int, int]]:
    """[0, rows) as (first, end), one for each of torch's threads at most."""
    count = min(rows, torch.get_num_threads())
    return [(rows * i // count, rows * (i + 1) // count) for i in range(count)]


def _offsets(seed: int, rows: int) -> Words:
    """What `rng.mix64` adds for the seed of each row."""
    return np.array([offset_of(seed + row) for row in range(rows)])
