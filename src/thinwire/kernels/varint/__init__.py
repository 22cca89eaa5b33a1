"""Unsigned LEB128: seven bits per byte, lowest first; the top bit says that more follow.

As in DWARF and in Protocol Buffers. Numbers are below 2^63, hence of at most nine bytes, and take
no more bytes than they need: of several bytes the last one is not zero.
"""

from torch import Tensor

from thinwire.errors import WireFormatError
from thinwire.kernels import implementation
from thinwire.kernels.varint import reference

MOST_BYTES = 9


def encode(numbers: Tensor) -> Tensor:
    """The bytes of 1-D int64 `numbers` ≥ 0."""
    return implementation(reference.encode, numbers.device)(numbers)


def decode(data: Tensor) -> Tensor:
    """All the numbers in `data`, which must be whole and none longer than it needs to be."""
    numbers, sound = implementation(reference.decode, data.device)(data)
    if not sound:
        raise WireFormatError(
            f"numbers must end, in at most {MOST_BYTES} bytes, and not with a byte of zeros"
        )
    return numbers
