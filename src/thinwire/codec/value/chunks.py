"""What codecs share that give every chunk of values a scale of its own.

Part: two bytes that are the codec's, two zero bytes, the chunk's length as u32; a float32 scale
for each chunk; then the codec's body. The last chunk may be shorter.
"""

import struct
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from thinwire.codec.parts import as_bytes
from thinwire.codec.value.numeric import saturate
from thinwire.errors import RecipeError, WireFormatError

LARGEST = torch.finfo(torch.float32).max
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
    if not 1 <= chunk < 2**32:
        raise RecipeError(f"{name}={chunk} must be in 1 … 2^32 - 1")


def in_chunks(values: Tensor, chunk: int) -> Tensor:
    """One chunk a row, the last filled up with zeros; finite values beyond float32 saturate."""
    chunk = min(chunk, max(1, values.numel()))
    fitted = saturate(values, LARGEST) if values.dtype == torch.float64 else values
    return pad(fitted, (0, -values.numel() % chunk)).view(-1, chunk)


def largest_magnitudes(rows: Tensor) -> Tensor:
    """The scale of each chunk, rounded up to float32 so that no value exceeds it."""
    if not rows.numel():
        return rows.new_zeros(0, dtype=torch.float32)
    return rounded_up(rows.abs().amax(1).double())


def rounded_up(exact: Tensor) -> Tensor:
    """The least float32 that is not below each float64; what is beyond float32 saturates."""
    exact = saturate(exact, LARGEST)
    near = exact.float()
    above = torch.nextafter(near, torch.full_like(near, float("inf")))
    return torch.where(near < exact, above, near)


def shares(rows: Tensor, scales: Tensor) -> Tensor:
    """Each value over its chunk's scale, within ±1; 0 where the scale is zero or not finite.

    Where a scale is NaN or Inf any share will do: what is decoded is not finite.
    """
    by = torch.where(scales == 0, 1, scales).to(rows.dtype)[:, None]
    return (rows / by).nan_to_num_(0)


def each_value(scales: Tensor, chunk: int, count: int) -> Tensor:
    """The scale of each of `count` values."""
    return scales.repeat_interleave(chunk, output_size=scales.numel() * chunk)[:count]


def join(first: int, second: int, chunk: int, scales: Tensor, body: Tensor) -> Tensor:
    """The part."""
    head = torch.frombuffer(bytearray(_SETTINGS.pack(first, second, 0, chunk)), dtype=torch.uint8)
    return torch.cat((head.to(body.device, non_blocking=True), as_bytes(scales), body))


def take_apart(part: Tensor, count: int) -> Opened:
    """The two settings, the chunk, the scales and the body; nothing is allocated."""
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
    if bool((scales < 0).any()):
        raise WireFormatError("scales must not be negative")
    return Opened(first, second, chunk, scales, part[end:])
