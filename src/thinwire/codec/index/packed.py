"""Checks of what `kernels.elias_fano` is about to take apart."""

from torch import Tensor

from thinwire.errors import WireFormatError
from thinwire.kernels.bitmap import count_bits

_WORD = (1 << 64) - 1


def check_vector(words: Tensor, start: int, count: int, highest: int) -> None:
    """Refuse a vector, from word `start` on, other than of `count` numbers of at most `highest`.

    Its last word must not be empty. No numbers, no words.
    """
    length = words.numel() - start
    if length < 0 or (length > 0) != (count > 0):
        raise WireFormatError(f"{words.numel()} words cannot hold {count} numbers")
    if count:
        last = int(words[-1]) & _WORD
        top = 64 * (length - 1) + last.bit_length() - count  # the high part of the last number
        if not last or top > highest or count_bits(words[start:]) != count:
            raise WireFormatError(f"the vector must hold {count} numbers of at most {highest}")


def spare_bits(packed: Tensor, used: int) -> int:
    """What the last word of a packed array holds past the bits that are used."""
    held = used % 64
    return (int(packed[-1]) & _WORD) >> held if held else 0
