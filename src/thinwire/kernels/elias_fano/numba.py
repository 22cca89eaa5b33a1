"""The split on the CPU: the word being filled stays in a register."""

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from thinwire.kernels._numba import trailing_zeros
from thinwire.kernels.bitmap.numba import count_bits

# Numba makes a float of uint64 with int64: every operand is a uint64.
ZERO, ONE, SIX = np.uint64(0), np.uint64(1), np.uint64(6)
LOW6, WORD = np.uint64(63), np.uint64(64)


@njit(cache=True, nogil=True)
def _split(
    numbers: NDArray[np.uint64],
    low_bits: np.uint64,
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
) -> None:
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
def _join(
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
    low_bits: np.uint64,
    out: NDArray[np.uint64],
) -> None:
    mask = (ONE << low_bits) - ONE
    i, start = ZERO, ZERO
    for w in range(high.size):
        word = high[w]
        base = np.uint64(w) << SIX
        while word:
            part = (base + trailing_zeros(word) - i) << low_bits
            word &= word - ONE
            shift = start & LOW6
            first, second = low[start >> SIX], low[(start >> SIX) + ONE]
            out[i] = part | (((first >> shift) | ((second << ONE) << (LOW6 - shift))) & mask)
            start += low_bits
            i += ONE


def split(numbers: Tensor, low_bits: int, high_size: int) -> Tensor:
    """See the package."""
    low_end = (numbers.numel() * low_bits + 63) // 64
    words = torch.zeros(low_end + (high_size + 63) // 64, dtype=torch.int64)
    view = words.numpy().view(np.uint64)
    _split(numbers.numpy().view(np.uint64), np.uint64(low_bits), view[:low_end], view[low_end:])
    return words


def join(words: Tensor, count: int, low_bits: int) -> tuple[Tensor, Tensor]:
    """See the package."""
    low_end = (count * low_bits + 63) // 64
    view = words.numpy().view(np.uint64)
    # A field may look at the word after its last one: with any low bits, that is one of `high`.
    low = view if low_bits else np.zeros(2, np.uint64)
    out = torch.empty(count, dtype=torch.int64)
    found = count_bits(words[low_end:])
    if found == count:
        _join(low, view[low_end:], np.uint64(low_bits), out.numpy().view(np.uint64))
    return out, torch.tensor(found)
