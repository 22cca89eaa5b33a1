"""Checks of what `kernels.elias_fano` takes apart, and of words of bits."""

import torch
from torch import Tensor

from thinwire.errors import WireFormatError

_WORD = (1 << 64) - 1


def check_vector(last: int, length: int, count: int, highest: int) -> None:
    """Refuse a vector of `length` words other than of `count` numbers of at most `highest`.

    Its `last` word must not be empty. No numbers, no words. How many bits are set is another
    matter.
    """
    if length < 0 or (length > 0) != (count > 0):
        raise WireFormatError(f"{length} words cannot hold {count} numbers")
    if count:
        top = 64 * (length - 1) + (last & _WORD).bit_length() - count  # the last high part
        if not last or not 0 <= top <= highest:
            raise WireFormatError(f"the vector must hold {count} numbers of at most {highest}")


def fetch(*numbers: Tensor) -> list[int]:
    """Several 0-D tensors of integers or truth values, for which the host waits but once."""
    fetched: list[int] = torch.stack([number.to(torch.int64) for number in numbers]).tolist()
    return fetched


def last_word(words: Tensor) -> Tensor:
    """The last word, 0-D, or zero where there is none."""
    return words[-1] if words.numel() else words.new_zeros(())


def spare_bits(last: int, used: int) -> int:
    """What the `last` word of a packed array holds past the bits that are used."""
    held = used % 64
    return (last & _WORD) >> held if held else 0
