"""Small things that parts are made and checked with."""

from torch import Tensor, uint8

from thinwire.errors import WireFormatError


def as_bytes(tensor: Tensor) -> Tensor:
    """The bytes of a 1-D tensor, without copying them where they already lie side by side."""
    return tensor.contiguous().view(uint8)


def expect_bytes(part: Tensor, expected: int, what: str) -> None:
    """Refuse a part of any other length; call it before allocating what the header asks for."""
    if part.shape[-1] != expected:
        raise WireFormatError(f"{what} take {expected} bytes, found {part.shape[-1]} bytes")
