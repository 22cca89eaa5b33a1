"""What lossless compressors of bytes share: the layout, and unpacking within bounds.

The bytes of the values are transposed before they are compressed: first the lowest byte of all
values, …, at last the highest, each in blocks of their own. Sign and exponent then lie side by
side, and they are all that can be made smaller: the lower bytes of a gradient are noise. It saves
2 to 3 of the 29 to 30 bits that the bytes take as they lie.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from thinwire.errors import WireFormatError

SLICE = 1024  # compressed bytes at a time: no more than 32 MiB can come out of them


class Decompressor(Protocol):
    """The stream decoder that `zlib` and `zstandard` both have."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def to_planes(values: Tensor) -> list[bytes]:
    """The lowest bytes of all values, …, the highest ones, by way of the host."""
    rows = values.cpu().numpy().view(np.uint8).reshape(-1, values.element_size())
    return [plane.tobytes() for plane in rows.T]


def from_planes(planes: bytearray, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The values."""
    rows = np.frombuffer(planes, np.uint8).reshape(dtype.itemsize, -1)
    return torch.from_numpy(np.ascontiguousarray(rows.T).reshape(-1)).view(dtype).to(device)


def as_part(stream: bytes, device: torch.device) -> Tensor:
    """A stream as a tensor."""
    return torch.frombuffer(bytearray(stream), dtype=torch.uint8).to(device)


def unpacked(
    part: Tensor, expected: int, decoder: Decompressor, damage: type[Exception]
) -> bytearray:
    """The `expected` bytes that a part stands for.

    What the stream says of its own size is not asked for, and memory grows with what really comes
    out of it: a few bytes that claim to be a large tensor fail before it is allocated.
    """
    stream, out = part.cpu().numpy().tobytes(), bytearray()
    try:
        for start in range(0, len(stream), SLICE):
            if decoder.eof:
                break
            out += decoder.decompress(stream[start : start + SLICE])
            if len(out) > expected:
                break
    except damage as error:
        raise WireFormatError(f"the compressed stream is damaged: {error}") from error
    ends_here = decoder.eof and not decoder.unused_data and start + SLICE >= len(stream)
    if len(out) != expected or not ends_here:
        raise WireFormatError(
            f"a stream of {expected} bytes must end where its part of {len(stream)} bytes does, "
            f"found {len(out)} bytes in it"
        )
    return out
