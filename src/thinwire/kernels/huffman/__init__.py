"""Huffman's code for numbers of any size: a symbol for the magnitude, then the bits it leaves open.

Numbers below 4 are their own symbols. Any other has its highest three bits in the symbol and the
rest, as they are, behind the symbol's code: four symbols for every power of two, 248 for all
numbers below 2^63. Inside a symbol's range a geometric distribution is nearly flat, so that next
to nothing is lost.

Bits fill 64-bit words from the lowest. A code's first bit is its highest, as in DEFLATE.
"""

from torch import Tensor

from thinwire.kernels import chosen
from thinwire.kernels.huffman.code import Code

__all__ = ["Code", "decode", "encode", "histogram"]


def histogram(numbers: Tensor) -> Tensor:
    """How often each symbol comes in int64 `numbers` ≥ 0."""
    if chosen(numbers.device, ("reference", "numba")) == "numba":
        from thinwire.kernels.huffman import numba

        return numba.histogram(numbers)
    from thinwire.kernels.huffman import reference

    return reference.histogram(numbers)


def encode(numbers: Tensor, code: Code, size: int) -> Tensor:
    """The words of `size` bits, which is what all the numbers take."""
    if chosen(numbers.device, ("reference", "numba")) == "numba":
        from thinwire.kernels.huffman import numba

        return numba.encode(numbers, code, size)
    from thinwire.kernels.huffman import reference

    return reference.encode(numbers, code, size)


def decode(words: Tensor, count: int, code: Code) -> tuple[Tensor, int]:
    """The first `count` numbers and how many bits they took; -1 where they are not all there."""
    if chosen(words.device, ("reference", "numba")) == "numba":
        from thinwire.kernels.huffman import numba

        return numba.decode(words, count, code)
    from thinwire.kernels.huffman import reference

    return reference.decode(words, count, code)
