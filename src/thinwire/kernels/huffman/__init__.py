"""Huffman's code for numbers of any size: a symbol for the magnitude, then the bits it leaves open.

Numbers below 4 are their own symbols. Any other has its highest three bits in the symbol and the
rest, as they are, behind the symbol's code: four symbols for every power of two, 248 for all
numbers below 2^63. Inside a symbol's range a geometric distribution is nearly flat, so that next
to nothing is lost.

Bits fill 64-bit words from the lowest. A code's first bit is its highest, as in DEFLATE.
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.huffman import reference
from thinwire.kernels.huffman.code import Code

__all__ = ["Code", "decode", "encode", "histogram"]


def histogram(numbers: Tensor) -> Tensor:
    """How often each symbol comes in int64 `numbers` ≥ 0."""
    return implementation(reference.histogram, numbers.device)(numbers)


def encode(numbers: Tensor, code: Code, size: int) -> Tensor:
    """The words of `size` bits, which is what all the numbers take."""
    return implementation(reference.encode, numbers.device)(numbers, code, size)


def decode(words: Tensor, count: int, code: Code) -> tuple[Tensor, int]:
    """The first `count` numbers and how many bits they took; -1 where they are not all there."""
    return implementation(reference.decode, words.device)(words, count, code)
