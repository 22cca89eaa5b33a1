"""Unsigned LEB128: seven bits a byte, lowest first; the top bit says that more follow.

As in DWARF and in Protocol Buffers. Numbers are below 2^63, hence of at most nine bytes, and take
no more bytes than they need: of several bytes the last one is not zero.
"""

from torch import Tensor

from thinwire.errors import WireFormatError
from thinwire.kernels import chosen

MOST_BYTES = 9


def encode(numbers: Tensor) -> Tensor:
    """The bytes of 1-D int64 `numbers` ≥ 0."""
    if chosen(numbers.device, ("reference", "numba")) == "numba":
        from thinwire.kernels.varint import numba

        return numba.encode(numbers)
    from thinwire.kernels.varint import reference

    return reference.encode(numbers)


def decode(data: Tensor) -> Tensor:
    """All the numbers in `data`, which must be whole and none longer than it needs to be."""
    if chosen(data.device, ("reference", "numba")) == "numba":
        from thinwire.kernels.varint import numba

        numbers, sound = numba.decode(data)
    else:
        from thinwire.kernels.varint import reference

        numbers, sound = reference.decode(data)
    if not sound:
        raise WireFormatError(
            f"numbers must end, in at most {MOST_BYTES} bytes, and not with a byte of zeros"
        )
    return numbers
