"""The split on the CPU: the word being filled stays in a register."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels._numba import (
    LOW6,
    ONE,
    SIX,
    WORD,
    ZERO,
    Words,
    peek,
    trailing_zeros,
    words_of,
)
from thinwire.kernels.bitmap import words_for
from thinwire.kernels.bitmap.numba import count_bits


@njit(cache=True, nogil=True)
def _split(numbers: Words, low_bits: np.uint64, low: Words, high: Words) -> None:
    mask = (ONE << low_bits) - ONE
    window, held, filled = ZERO, ZERO, 0
    word, at = ZERO, ZERO
    for i in range(numbers.size):
        number = numbers[i]
        field = number & mask
        window |= field << held
        held += low_bits
        if held >= WORD:
            low[filled] = window
            filled += 1
            held -= WORD
            window = field >> (low_bits - held)
        bit = (number >> low_bits) + np.uint64(i)
        if bit >> SIX != at:
            high[at] = word
            word, at = ZERO, bit >> SIX
        word |= ONE << (bit & LOW6)
    if held:
        low[filled] = window
    if numbers.size:
        high[at] = word


@njit(cache=True, nogil=True)
def _join(low: Words, high: Words, low_bits: np.uint64, out: Words) -> None:
    mask = (ONE << low_bits) - ONE
    i, start = ZERO, ZERO
    for w in range(high.size):
        word = high[w]
        base = np.uint64(w) << SIX
        while word:
            part = (base + trailing_zeros(word) - i) << low_bits
            word &= word - ONE
            out[i] = part | (peek(low, start) & mask)
            start += low_bits
            i += ONE


def split(numbers: Tensor, low_bits: int, high_size: int) -> Tensor:
    low_end = words_for(numbers.numel() * low_bits)
    words = torch.zeros(low_end + words_for(high_size), dtype=torch.int64)
    view = words_of(words)
    _split(words_of(numbers), np.uint64(low_bits), view[:low_end], view[low_end:])
    return words


def join(words: Tensor, count: int, low_bits: int) -> tuple[Tensor, Tensor]:
    low_end = words_for(count * low_bits)
    view = words_of(words)
    # A field may look at the word after its last one: with any low bits, that is one of `high`.
    low = view if low_bits else np.zeros(2, np.uint64)
    out = torch.empty(count, dtype=torch.int64)
    ones = count_bits(words[low_end:])
    if ones == count:
        _join(low, view[low_end:], np.uint64(low_bits), words_of(out))
    return out, torch.tensor(ones)
