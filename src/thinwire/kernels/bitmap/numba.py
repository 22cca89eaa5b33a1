"""Vectors of bits on the CPU, a word at a time."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels._numba import (
    LOW6,
    ONE,
    SIX,
    ZERO,
    Indices,
    Words,
    ones,
    trailing_zeros,
    words_of,
)
from thinwire.kernels.bitmap import words_for


@njit(cache=True, nogil=True)
def mark(positions: Words, words: Words) -> None:
    """Set the bit at each of the positions."""
    for p in positions:
        words[p >> SIX] |= ONE << (p & LOW6)


@njit(cache=True, nogil=True)
def _count(words: Words) -> int:
    total = ZERO
    for word in words:
        total += ones(word)
    return int(total)


@njit(cache=True, nogil=True)
def list_bits(words: Words, out: Indices) -> None:
    """The positions of the bits that are set, for all of which `out` has room."""
    listed = 0
    for w in range(words.size):
        word = words[w]
        while word:
            out[listed] = (w << 6) + np.int64(trailing_zeros(word))
            word &= word - ONE
            listed += 1


def set_bits(positions: Tensor, size: int) -> Tensor:
    words = torch.zeros(words_for(size), dtype=torch.int64)
    mark(words_of(positions), words_of(words))
    return words


def count_bits(words: Tensor) -> int:
    return int(_count(words_of(words)))


def positions(words: Tensor, count: int) -> tuple[Tensor, Tensor]:
    out = torch.empty(count, dtype=torch.int64)
    total = count_bits(words)
    if total == count:
        list_bits(words_of(words), out.numpy())
    return out, torch.tensor(total)
