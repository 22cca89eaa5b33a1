"""The gaps between indices through pcodec."""

import struct
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from thinwire.codec.extras import optional
from thinwire.codec.index.ascending import (
    AscendingIndex,
    from_gaps,
    to_gaps,
    with_proof,
    without_proof,
)
from thinwire.codec.value.lossless import as_part
from thinwire.errors import WireFormatError
from thinwire.settings import check_integer

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class PcoIndex(AscendingIndex):
    """Not in DeepReduce: bins of numbers with tANS (Loncaric, "Pcodec", 2025).

    Needs the package `pcodec`. Fits any distribution of gaps: 8.1 bits per index where indices are
    uniform at 1 %, once they are so many that the bins' table does not count. Runs on the host.
    The bytes that come out depend on the library at hand; every other reads them.

    Part: a standalone pcodec file of int64 gaps, and its length (u64); with zeros in front where
    these are less than a byte for every 1,024 indices. No indices, no file.
    """

    id = 10
    name = "pco"

    level: int = 8

    def __post_init__(self) -> None:
        check_integer("level", self.level, 0, 12)
        optional("pcodec.standalone", self.name)

    def _encode(self, indices: Tensor, rows: int) -> Tensor:
        gaps = to_gaps(indices, rows).cpu().numpy()
        if not gaps.size:
            return indices.new_empty(0, dtype=torch.uint8)
        library = optional("pcodec", self.name)
        settings = library.ChunkConfig(self.level, delta_spec=library.DeltaSpec.no_op())
        file = optional("pcodec.standalone", self.name).simple_compress(gaps, settings)
        return as_part(with_proof(file + _LENGTH.pack(len(file)), gaps.size), indices.device)

    def _decode(self, body: Tensor, count: int, rows: int) -> Tensor:
        if not count and not body.numel():
            return body.new_empty(0, dtype=torch.int64)
        if not count or body.numel() < _LENGTH.size:
            raise WireFormatError(f"{body.numel()} bytes for {count} indices")
        (length,) = _LENGTH.unpack(bytes(body[-_LENGTH.size :].tolist()))
        file = without_proof(body, length + _LENGTH.size, count)[: -_LENGTH.size]
        gaps = np.empty(count, dtype=np.int64)
        decompress = optional("pcodec.standalone", self.name).simple_decompress_into
        try:
            progress = decompress(file.cpu().numpy().tobytes(), gaps)
        except (RuntimeError, TypeError) as error:
            raise WireFormatError(f"the pcodec file is damaged: {error}") from error
        if not progress.finished or progress.n_processed != count or int(gaps.min()) < 0:
            raise WireFormatError(f"there must be {count} gaps, found {progress.n_processed}")
        return from_gaps(torch.from_numpy(gaps).to(body.device), rows)
