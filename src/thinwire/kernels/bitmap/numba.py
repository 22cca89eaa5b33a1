"""Vectors of bits on the CPU, a word at a time."""

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from thinwire.kernels._numba import ones, trailing_zeros

ONE, LOW6, SIX = np.uint64(1), np.uint64(63), np.uint64(6)


@njit(cache=True, nogil=True)
def _set(positions: NDArray[np.uint64], words: NDArray[np.uint64]) -> None:
    for p in positions:
        words[p >> SIX] |= ONE << (p & LOW6)


@njit(cache=True, nogil=True)
def _count(words: NDArray[np.uint64]) -> int:
    total = np.uint64(0)
    for word in words:
        total += ones(word)
    return int(total)


@njit(cache=True, nogil=True)
def _positions(words: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
    found = 0
    for w in range(words.size):
        word = words[w]
        while word:
            out[found] = (w << 6) + np.int64(trailing_zeros(word))
            word &= word - ONE
            found += 1


def set_bits(positions: Tensor, size: int) -> Tensor:
    """See the package."""
    words = torch.zeros((size + 63) // 64, dtype=torch.int64)
    _set(positions.numpy().view(np.uint64), words.numpy().view(np.uint64))
    return words


def count_bits(words: Tensor) -> int:
    """See the package."""
    return int(_count(words.numpy().view(np.uint64)))


def positions(words: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """See the package."""
    out = torch.empty(count, dtype=torch.int64)
    found = count_bits(words)
    if found == count:
        _positions(words.numpy().view(np.uint64), out.numpy())
    return out, torch.tensor(found)
