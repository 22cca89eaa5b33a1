"""A set of positions as a vector of bits, and back.

Bit p is bit p mod 64 of word p div 64; the words are little-endian, so it is bit p mod 8 of byte
p div 8 as well.
"""

from torch import Tensor

from thinwire.kernels import chosen


def words_for(bits: int) -> int:
    """How many int64 words hold so many bits."""
    return (bits + 63) // 64


def set_bits(positions: Tensor, size: int) -> Tensor:
    """The int64 words of `size` bits in which those at int64 `positions` in [0, size) are set."""
    if chosen(positions.device, ("reference", "numba")) == "numba":
        from thinwire.kernels.bitmap import numba

        return numba.set_bits(positions, size)
    from thinwire.kernels.bitmap import reference

    return reference.set_bits(positions, size)


def count_bits(words: Tensor) -> int:
    """How many bits are set."""
    if chosen(words.device, ("reference", "numba")) == "numba":
        from thinwire.kernels.bitmap import numba

        return numba.count_bits(words)
    from thinwire.kernels.bitmap import reference

    return reference.count_bits(words)


def positions(words: Tensor, count: int) -> Tensor:
    """The ascending positions of the bits that are set; there must be `count` of them."""
    if chosen(words.device, ("reference", "numba")) == "numba":
        from thinwire.kernels.bitmap import numba

        return numba.positions(words, count)
    from thinwire.kernels.bitmap import reference

    return reference.positions(words, count)
