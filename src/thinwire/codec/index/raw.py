"""Indices as they are, in the narrowest of three integer types."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.errors import WireFormatError
from thinwire.kernels.raw_indices import widen
from thinwire.types import PADDING, IndexCodec


@dataclass(frozen=True, slots=True)
class RawIndex(IndexCodec):
    """Two bytes per index for at most 2^16 rows, four up to 2^31, else eight; in any order.

    DeepReduce's "bypass" of index compression (section 3). Two-byte indices are unsigned.
    """

    id = 1
    name = "raw"
    steady = True
    draws = False

    def encode(self, indices: Tensor, rows: int, ordered: bool) -> Tensor:
        """The indices in the narrowest type that holds every row's."""
        return as_bytes(indices.to(_narrowest(rows)))

    def decode(self, part: Tensor, count: int, rows: int) -> Tensor:
        """The indices, after a look at the smallest and the largest of them."""
        narrow = _narrow(part, count, rows)
        indices = narrow.to(torch.int64)
        if narrow.dtype == torch.int16:
            indices &= 0xFFFF
        if count:
            low, high = torch.stack(torch.aminmax(indices)).tolist()
            if low < 0 or high >= rows:
                raise WireFormatError(f"indices must be in [0, {rows}), found {low} … {high}")
        return indices

    def encode_rows(self, indices: Tensor, rows: int) -> Tensor:
        narrow = _narrowest(rows)
        if narrow == torch.int64:  # the narrower ones make it so
            indices = indices.masked_fill(indices == PADDING, -1)
        return indices.to(narrow).view(torch.uint8)

    def write_rows(self, indices: Tensor, rows: int, parts: Tensor) -> None:
        if _narrowest(rows) == torch.int64:
            parts.copy_(self.encode_rows(indices, rows))
        else:
            parts.view(_narrowest(rows)).copy_(indices)

    def size(self, count: int, rows: int) -> int:
        return count * _narrowest(rows).itemsize

    def takes_any_order(self, rows: int) -> bool:
        return rows != 2**16  # whose last has the bits of padding

    def decode_rows(self, parts: Tensor, count: int, rows: int) -> tuple[Tensor, Tensor]:
        # Where padding is the last of 2^16 rows, one that comes first adds its zero to it.
        return widen(_narrow(parts, count, rows), rows, ordered=True)

    def decode_any_order(self, parts: Tensor, count: int, rows: int) -> tuple[Tensor, Tensor]:
        return widen(_narrow(parts, count, rows), rows, ordered=False)


def _narrow(parts: Tensor, count: int, rows: int) -> Tensor:
    narrow = _narrowest(rows)
    expect_bytes(parts, count * narrow.itemsize, f"{count} raw indices below {rows}")
    return parts.view(narrow)


def _narrowest(rows: int) -> torch.dtype:
    if rows <= 2**16:
        return torch.int16
    return torch.int32 if rows <= 2**31 else torch.int64
