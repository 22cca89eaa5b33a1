"""Elias and Fano's split: the low bits of each number side by side, the high parts in unary.

Of number i the low `low_bits` bits are field i of a packed array; its high part h_i, which must
not descend, sets bit h_i + i of a vector. Both are scanned a word at a time, on any device. This
is the layout of Vigna's "Broadword implementation of rank/select queries" (WEA 2008), without
his directories.
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.bitmap import words_for
from thinwire.kernels.elias_fano import reference


def low_words(count: int, low_bits: int) -> int:
    """How many words the low bits take; the rest is the vector."""
    return words_for(count * low_bits)


def split(numbers: Tensor, low_bits: int, high_size: int) -> Tensor:
    """The words of both: int64 `numbers` ≥ 0, low_bits < 63, and a vector of `high_size` bits.

    `high_size` is above (numbers >> low_bits) + i, for every one of them.
    """
    return implementation(reference.split, numbers.device)(numbers, low_bits, high_size)


def join(words: Tensor, count: int, low_bits: int) -> tuple[Tensor, Tensor]:
    """The numbers, and how many bits of the vector are set (0-D int64).

    If those are not `count`, the numbers are anything: the host need not wait to know.
    """
    return implementation(reference.join, words.device)(words, count, low_bits)
