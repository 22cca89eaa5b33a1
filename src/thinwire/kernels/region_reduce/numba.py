"""The sum of sparse parts on the CPU through a bitmap: O(k + region/64), and no sort.

One bit for each element of the region says whether any part has it. The number of set bits before
an index is its place in the result. Nothing is allocated but the bitmap (1/32 of a dense buffer),
a counter a word and the result itself; ascending parts walk through all three from left to right.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels._numba import LOW6, ONE, Array, Indices, Words, ones, words_of
from thinwire.kernels.bitmap.numba import list_bits, mark
from thinwire.kernels.region_reduce import reference
from thinwire.types import Sparse

WORDS_FOR_FREE = 1 << 16  # a bitmap of 512 KiB stays in the cache, however few indices there are
WORDS_AN_INDEX = 16  # beyond so many words to clear and scan for each index, sorting is faster


@njit(cache=True, nogil=True)
def _count_before(bitmap: Words, before: Indices) -> np.int64:
    total = np.int64(0)
    for i in range(bitmap.size):
        before[i] = total
        if bitmap[i]:
            total += np.int64(ones(bitmap[i]))
    return total


@njit(cache=True, nogil=True)
def _add(indices: Indices, values: Array, bitmap: Words, before: Indices, out: Array) -> None:
    for i in range(indices.size):
        word = indices[i] >> 6
        lower = (ONE << (np.uint64(indices[i]) & LOW6)) - ONE
        out[before[word] + np.int64(ones(bitmap[word] & lower))] += values[i]


@njit(cache=True, nogil=True)
def _common(indices: Indices, others: Indices, out: Indices) -> np.int64:
    count, i, j = np.int64(0), 0, 0
    while i < indices.size and j < others.size:
        a, b = indices[i], others[j]
        if count < out.size:
            out[count] = i
        # No branch to mispredict: both sides move on by comparison.
        count += a == b
        i += a <= b
        j += b <= a
    return count


def region_reduce(parts: Sequence[Sparse], numel: int) -> Sparse:
    words = numel // 64 + 1
    if words > max(WORDS_FOR_FREE, WORDS_AN_INDEX * sum(part.count for part in parts)):
        return reference.region_reduce(parts, numel)
    bitmap = np.zeros(words, np.uint64)
    before = np.empty(bitmap.size, np.int64)
    for part in parts:
        mark(words_of(part.indices), bitmap)
    count = int(_count_before(bitmap, before))
    indices = torch.empty(count, dtype=torch.int64)
    list_bits(bitmap, indices.numpy())
    values = torch.zeros(count, dtype=parts[0].values.dtype)
    for part in parts:
        _add(part.indices.numpy(), part.values.detach().numpy(), bitmap, before, values.numpy())
    return Sparse(indices, values, numel, ordered=True)


def common(indices: Tensor, others: Tensor) -> Tensor:
    out = torch.empty(min(indices.numel(), others.numel()), dtype=torch.int64)
    count = int(_common(indices.numpy(), others.numpy(), out.numpy()))
    return out[:count]
