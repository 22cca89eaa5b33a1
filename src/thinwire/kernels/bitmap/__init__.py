"""A set of positions as a vector of bits, and back.

Bit p is bit p mod 64 of word p div 64; the words are little-endian, so it is bit p mod 8 of byte
p div 8 as well.
"""

from typing import Any

from torch import Tensor

from thinwire.kernels import Implementation, implementation

BUILT: tuple[Implementation, ...] = ("reference", "numba", "triton")


def words_for(bits: int) -> int:
    """How many int64 words hold so many bits."""
    return (bits + 63) // 64


def set_bits(positions: Tensor, size: int) -> Tensor:
    """The int64 words of `size` bits in which those at int64 `positions` in [0, size) are set."""
    words: Tensor = _implementation(positions).set_bits(positions, size)
    return words


def count_bits(words: Tensor) -> int:
    """How many bits are set."""
    return int(_implementation(words).count_bits(words))


def positions(words: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ascending positions of the bits that are set, and how many these are (0-D int64).

    If they are not `count`, the positions are anything: the host need not wait to know.
    """
    listed: tuple[Tensor, Tensor] = _implementation(words).positions(words, count)
    return listed


def _implementation(x: Tensor) -> Any:
    return implementation(__name__, x.device, BUILT)
