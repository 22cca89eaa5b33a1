"""Zstandard, lossless."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.codec.extras import optional
from thinwire.codec.value.lossless import as_part, from_planes, to_planes, unpacked
from thinwire.settings import check_integer
from thinwire.types import ValueCodec

_MOST_WINDOW = 1 << 23  # what level 19 takes, and the most that RFC 8878 asks a decoder to have


@dataclass(frozen=True, slots=True)
class ZstdValue(ValueCodec):
    """A Zstandard frame (RFC 8878): smaller than Deflate, and several times faster.

    Needs the package `zstandard`. The values' bytes are transposed first, see `lossless`; the
    bytes that come out depend on the library at hand, every other reads them.

    Part: the frame.
    """

    id = 9
    name = "zstd"
    lossless = True
    unbiased: ClassVar[bool] = True

    level: int = 1

    def __post_init__(self) -> None:
        check_integer("level", self.level, 1, 19)
        optional("zstandard", self.name)

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """The frame, made on the host."""
        library = optional("zstandard", self.name)
        size = values.numel() * values.element_size()
        stream = library.ZstdCompressor(self.level).compressobj(size)
        pieces = []
        for plane in to_planes(values):
            pieces += [stream.compress(plane), stream.flush(library.COMPRESSOBJ_FLUSH_BLOCK)]
        return as_part(b"".join([*pieces, stream.flush()]), values.device)

    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """The very values."""
        library = optional("zstandard", self.name)
        decoder = library.ZstdDecompressor(max_window_size=_MOST_WINDOW).decompressobj()
        planes = unpacked(part, count * dtype.itemsize, decoder, library.ZstdError)
        return from_planes(planes, dtype, part.device)

    def error_bound(self, values: Tensor) -> Tensor:
        """None at all."""
        return torch.zeros_like(values, dtype=torch.float64)
