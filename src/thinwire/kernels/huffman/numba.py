"""Huffman's code on the CPU: one table look-up a number."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels._numba import (
    ONE,
    SIX,
    WORD,
    ZERO,
    Indices,
    Words,
    leading_zeros,
    peek,
    words_of,
)
from thinwire.kernels.bitmap import words_for
from thinwire.kernels.huffman.code import BASES, LONGEST, SYMBOLS, WIDTHS, Code

CODE_MASK = np.uint64((1 << LONGEST) - 1)


@njit(cache=True, nogil=True)
def _symbol(number: int) -> int:
    if number < 4:
        return number
    exponent = 63 - np.int64(leading_zeros(np.uint64(number)))
    return int(4 * (exponent - 1) + ((number >> (exponent - 2)) & 3))


@njit(cache=True, nogil=True)
def _histogram(numbers: Indices, out: Indices) -> None:
    for number in numbers:
        out[_symbol(number)] += 1


@njit(cache=True, nogil=True)
def _encode(
    numbers: Indices, codes: Words, lengths: Words, widths: Words, bases: Indices, words: Words
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
def _decode(words: Words, table: Indices, widths: Words, bases: Indices, out: Indices) -> int:
    end = np.uint64(words.size - 2) << SIX
    at = ZERO
    for i in range(out.size):
        window = peek(words, at)
        entry = table[window & CODE_MASK]
        if entry < 0:
            return -1
        symbol, length = entry >> 4, np.uint64(entry & 15)
        width = widths[symbol]
        window = window >> length if length + width <= WORD else peek(words, at + length)
        out[i] = bases[symbol] + np.int64(window & ((ONE << width) - ONE))
        at += length + width
        if at > end:
            return -1
    return int(at)


def histogram(numbers: Tensor) -> Tensor:
    out = torch.zeros(SYMBOLS, dtype=torch.int64)
    _histogram(numbers.numpy(), out.numpy())
    return out


def encode(numbers: Tensor, code: Code, size: int) -> Tensor:
    words = torch.zeros(words_for(size), dtype=torch.int64)
    codes, lengths, widths = (t.view(np.uint64) for t in (code.codes, code.all_lengths, WIDTHS))
    _encode(numbers.numpy(), codes, lengths, widths, BASES, words_of(words))
    return words


def decode(words: Tensor, count: int, code: Code) -> tuple[Tensor, int]:
    padded = torch.cat((words, words.new_zeros(2)))
    out = torch.empty(count, dtype=torch.int64)
    used = _decode(words_of(padded), code.table, WIDTHS.view(np.uint64), BASES, out.numpy())
    return out, int(used)
