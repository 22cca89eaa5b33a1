"""Huffman's code on the CPU: one table look-up a number."""

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from thinwire.kernels._numba import leading_zeros
from thinwire.kernels.huffman.code import BASES, LONGEST, SYMBOLS, WIDTHS, Code

ZERO, ONE, SIX = np.uint64(0), np.uint64(1), np.uint64(6)
LOW6, WORD = np.uint64(63), np.uint64(64)
CODE_MASK = np.uint64((1 << LONGEST) - 1)


@njit(cache=True, nogil=True)
def _symbol(number: int) -> int:
    if number < 4:
        return number
    exponent = 63 - np.int64(leading_zeros(np.uint64(number)))
    return int(4 * (exponent - 1) + ((number >> (exponent - 2)) & 3))


@njit(cache=True, nogil=True)
def _histogram(numbers: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    for number in numbers:
        out[_symbol(number)] += 1


@njit(cache=True, nogil=True)
def _encode(
    numbers: NDArray[np.int64],
    codes: NDArray[np.uint64],
    lengths: NDArray[np.uint64],
    widths: NDArray[np.uint64],
    bases: NDArray[np.int64],
    words: NDArray[np.uint64],
) -> None:
    window, held, at = ZERO, ZERO, 0
    for number in numbers:
        symbol = _symbol(number)
        field, width = codes[symbol], lengths[symbol]
        for _ in range(2):  # the code, then the bits behind it
            window |= field << held
            held += width
            if held >= WORD:
                words[at] = window
                at += 1
                held -= WORD
                window = field >> (width - held) if held else ZERO
            field, width = np.uint64(number - bases[symbol]), widths[symbol]
    if held:
        words[at] = window


@njit(cache=True, nogil=True)
def _peek(words: NDArray[np.uint64], start: np.uint64) -> np.uint64:
    word, shift = start >> SIX, start & LOW6
    bits: np.uint64 = (words[word] >> shift) | ((words[word + ONE] << ONE) << (LOW6 - shift))
    return bits


@njit(cache=True, nogil=True)
def _decode(
    words: NDArray[np.uint64],
    table: NDArray[np.int64],
    widths: NDArray[np.uint64],
    bases: NDArray[np.int64],
    out: NDArray[np.int64],
) -> int:
    end = np.uint64(words.size - 2) << SIX
    at = ZERO
    for i in range(out.size):
        window = _peek(words, at)
        entry = table[window & CODE_MASK]
        if entry < 0:
            return -1
        symbol, length = entry >> 4, np.uint64(entry & 15)
        width = widths[symbol]
        window = window >> length if length + width <= WORD else _peek(words, at + length)
        out[i] = bases[symbol] + np.int64(window & ((ONE << width) - ONE))
        at += length + width
        if at > end:
            return -1
    return int(at)


def histogram(numbers: Tensor) -> Tensor:
    """See the package."""
    out = torch.zeros(SYMBOLS, dtype=torch.int64)
    _histogram(numbers.numpy(), out.numpy())
    return out


def encode(numbers: Tensor, code: Code, size: int) -> Tensor:
    """See the package."""
    words = torch.zeros((size + 63) // 64, dtype=torch.int64)
    lengths = code.all_lengths.view(np.uint64)
    widths = WIDTHS.view(np.uint64)
    view = words.numpy().view(np.uint64)
    _encode(numbers.numpy(), code.codes.view(np.uint64), lengths, widths, BASES, view)
    return words


def decode(words: Tensor, count: int, code: Code) -> tuple[Tensor, int]:
    """See the package."""
    padded = torch.cat((words, words.new_zeros(2)))
    out = torch.empty(count, dtype=torch.int64)
    view = padded.numpy().view(np.uint64)
    used = _decode(view, code.table, WIDTHS.view(np.uint64), BASES, out.numpy())
    return out, int(used)
