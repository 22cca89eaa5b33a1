"""A set of positions as a vector of bits, and back.

Bit p is bit p mod 64 of word p div 64; the words are little-endian, so it is bit p mod 8 of byte
p div 8 as well.
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.bitmap import reference


def words_for(bits: int) -> int:
    """How many int64 words hold so many bits."""
    return (bits + 63) // 64


def set_bits(positions: Tensor, size: int) -> Tensor:
    """The int64 words of `size` bits in which those at int64 `positions` in [0, size) are set."""
    return implementation(reference.set_bits, positions.device)(positions, size)


def count_bits(words: Tensor) -> int:
    """How many bits are set."""
    return implementation(reference.count_bits, words.device)(words)


def positions(words: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ascending positions of the bits that are set, and how many these are (0-D int64).

    If they are not `count`, the positions are anything: the host need not wait to know.
    """
    return implementation(reference.positions, words.device)(words, count)
