"""What codecs share that give every chunk of values a scale of its own.

Part: two bytes that are the codec's, two zero bytes, the chunk's length as u32; a float32 scale
for each chunk; then the codec's body. The last chunk may be shorter.
"""

import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codec.parts import as_bytes
from thinwire.errors import WireFormatError
from thinwire.settings import check_integer

_SETTINGS = struct.Struct("<BBHI")


@dataclass(frozen=True, slots=True)
class Opened:
    """A part taken apart; `chunk` is at most the number of values."""

    first: int
    second: int
    chunk: int
    scales: Tensor
    body: Tensor


def check_chunk(name: str, chunk: int) -> None:
    """Refuse a setting that the wire has no room for."""
    check_integer(name, chunk, 1, 2**32 - 1)


def join(first: int, second: int, chunk: int, scales: Tensor, body: Tensor) -> Tensor:
    """The part."""
    head = torch.frombuffer(bytearray(_SETTINGS.pack(first, second, 0, chunk)), dtype=torch.uint8)
    return torch.cat((head.to(body.device, non_blocking=True), as_bytes(scales), body))


def take_apart(part: Tensor, count: int) -> Opened:
    """The two settings, the chunk, the scales and the body; nothing is allocated.

    That no scale is negative is still to be checked.
    """
    if part.numel() < _SETTINGS.size:
        raise WireFormatError(f"settings take {_SETTINGS.size} bytes, found {part.numel()} bytes")
    first, second, zero, chunk = _SETTINGS.unpack(bytes(part[: _SETTINGS.size].tolist()))
    if zero or not chunk:
        raise WireFormatError(f"no such settings: chunks of {chunk}, spare bytes {zero}")
    chunk = min(chunk, max(1, count))  # or one chunk could claim more memory than the values
    scale_count = -(-count // chunk)
    end = _SETTINGS.size + 4 * scale_count
    if part.numel() < end:
        raise WireFormatError(
            f"settings and {scale_count} scales take {end} bytes, found {part.numel()} bytes"
        )
    scales = part[_SETTINGS.size : end].view(torch.float32)
    return Opened(first, second, chunk, scales, part[end:])
