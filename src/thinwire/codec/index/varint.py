"""The gaps between indices, in as few bytes each as they need."""

from dataclasses import dataclass

from torch import Tensor

from thinwire.codec.index.ascending import AscendingIndex, from_gaps, to_gaps
from thinwire.errors import WireFormatError
from thinwire.kernels import varint


@dataclass(frozen=True, slots=True)
class VarintIndex(AscendingIndex):
    """Delta coding in whole bytes (LEB128), as SketchML's delta-binary keys (SIGMOD 2018) are.

    A gap below 128 takes one byte, one below 16,384 two: 10.2 bits per index at 1 %.

    Deviation from SketchML: byte counts are in the bytes' top bits, not in a vector of flags.

    Part: the gaps, one after the other; see `kernels.varint`.
    """

    id = 6
    name = "varint"

    def _encode(self, indices: Tensor, rows: int) -> Tensor:
        return varint.encode(to_gaps(indices, rows))

    def _decode(self, body: Tensor, count: int, rows: int) -> Tensor:
        if body.numel() < count:
            raise WireFormatError(f"{count} gaps take {count} bytes or more, found {body.numel()}")
        gaps = varint.decode(body)
        if gaps.numel() != count:
            raise WireFormatError(f"there must be {count} gaps, found {gaps.numel()}")
        return from_gaps(gaps, rows)
