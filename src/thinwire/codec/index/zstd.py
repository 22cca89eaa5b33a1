"""The gaps between indices as bytes, and these through Zstandard."""

import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codec.extras import optional
from thinwire.codec.index.ascending import AscendingIndex
from thinwire.codec.index.varint import VarintIndex
from thinwire.codec.value.lossless import as_part, unpacked
from thinwire.errors import WireFormatError
from thinwire.settings import check_integer

_LENGTH = struct.Struct("<Q")
_MOST_BYTES = 10  # of a gap below 2^63
_MOST_WINDOW = 1 << 23  # what level 19 takes


@dataclass(frozen=True, slots=True)
class ZstdIndex(AscendingIndex):
    """Not in DeepReduce: the gaps in LEB128 (`varint`), in a Zstandard frame (RFC 8878).

    Needs the package `zstandard`. Finds gaps that repeat, as those of rows of one width do; uniform
    indices take 9.0 bits at 1 %. Runs on the host. The bytes that come out depend on the library
    at hand; every other reads them.

    Part: the frame, and how many bytes are in it (u64).
    """

    id = 11
    name = "zstd"

    level: int = 1

    def __post_init__(self) -> None:
        check_integer("level", self.level, 1, 19)
        optional("zstandard", self.name)

    def _encode(self, indices: Tensor, rows: int) -> Tensor:
        gaps = VarintIndex()._encode(indices, rows).cpu().numpy().tobytes()
        frame = optional("zstandard", self.name).ZstdCompressor(self.level).compress(gaps)
        return as_part(frame + _LENGTH.pack(len(gaps)), indices.device)

    def _decode(self, body: Tensor, count: int, rows: int) -> Tensor:
        if body.numel() < _LENGTH.size:
            raise WireFormatError(f"a length takes {_LENGTH.size} bytes, found {body.numel()}")
        (length,) = _LENGTH.unpack(bytes(body[-_LENGTH.size :].tolist()))
        if not count <= length <= _MOST_BYTES * count:
            raise WireFormatError(f"{count} gaps cannot take {length} bytes")
        library = optional("zstandard", self.name)
        decoder = library.ZstdDecompressor(max_window_size=_MOST_WINDOW).decompressobj()
        gaps = unpacked(body[: -_LENGTH.size], length, decoder, library.ZstdError)
        part = torch.frombuffer(gaps, dtype=torch.uint8) if gaps else body[:0].cpu()
        return VarintIndex()._decode(part.to(body.device), count, rows)
