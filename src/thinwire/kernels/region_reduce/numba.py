"""The sum of sparse parts on the CPU through a bitmap: O(k + region/64), and no sort.

One bit for each element of the region says whether any part has it. The number of set bits before
an index is its place in the result. Nothing is allocated but the bitmap (1/32 of a dense buffer),
a counter a word and the result itself; ascending parts walk through all three from left to right.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from thinwire.kernels._numba import ones
from thinwire.kernels.region_reduce import reference
from thinwire.types import Sparse

# Numba makes a float of uint64 with int64: every operand is a uint64.
ONE, LOW6 = np.uint64(1), np.uint64(63)
WORDS_FOR_FREE = 1 << 16  # a bitmap of 512 KiB stays in the cache, however few indices there are
WORDS_AN_INDEX = 16  # beyond so many words to clear and scan for each index, sorting is faster


@njit(cache=True, nogil=True)
def _mark(indices: NDArray[np.int64], bitmap: NDArray[np.uint64]) -> None:
    for index in indices:
        bitmap[index >> 6] |= ONE << (np.uint64(index) & LOW6)


@njit(cache=True, nogil=True)
def _count_before(bitmap: NDArray[np.uint64], before: NDArray[np.int64]) -> np.int64:
    total = np.int64(0)
    for i in range(bitmap.size):
        before[i] = total
        if bitmap[i]:
            total += np.int64(ones(bitmap[i]))
    return total


@njit(cache=True, nogil=True)
def _list(bitmap: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
    at = 0
    for i in range(bitmap.size):
        word = bitmap[i]
        while word:
            rest = word & (word - ONE)
            out[at] = (i << 6) + np.int64(ones((word ^ rest) - ONE))
            at += 1
            word = rest


@njit(cache=True, nogil=True)
def _add(
    indices: NDArray[np.int64],
    values: NDArray[Any],
    bitmap: NDArray[np.uint64],
    before: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    for i in range(indices.size):
        word = indices[i] >> 6
        lower = (ONE << (np.uint64(indices[i]) & LOW6)) - ONE
        out[before[word] + np.int64(ones(bitmap[word] & lower))] += values[i]


@njit(cache=True, nogil=True)
def _common(
    indices: NDArray[np.int64], others: NDArray[np.int64], out: NDArray[np.int64]
) -> np.int64:
    found, i, j = np.int64(0), 0, 0
    while i < indices.size and j < others.size:
        a, b = indices[i], others[j]
        if found < out.size:
            out[found] = i
        # No branch to mispredict: both sides move on by comparison.
        found += a == b
        i += a <= b
        j += b <= a
    return found


def region_reduce(parts: Sequence[Sparse], numel: int) -> Sparse:
    """See the package."""
    words = numel // 64 + 1
    if words > max(WORDS_FOR_FREE, WORDS_AN_INDEX * sum(part.count for part in parts)):
        return reference.region_reduce(parts, numel)
    bitmap = np.zeros(words, np.uint64)
    before = np.empty(bitmap.size, np.int64)
    for part in parts:
        _mark(part.indices.numpy(), bitmap)
    count = int(_count_before(bitmap, before))
    indices = torch.empty(count, dtype=torch.int64)
    _list(bitmap, indices.numpy())
    values = torch.zeros(count, dtype=parts[0].values.dtype)
    for part in parts:
        _add(part.indices.numpy(), part.values.detach().numpy(), bitmap, before, values.numpy())
    return Sparse(indices, values, numel, ordered=True)


def common(indices: Tensor, others: Tensor) -> Tensor:
    """See the package."""
    out = torch.empty(min(indices.numel(), others.numel()), dtype=torch.int64)
    found = int(_common(indices.numpy(), others.numpy(), out.numpy()))
    return out[:found]
