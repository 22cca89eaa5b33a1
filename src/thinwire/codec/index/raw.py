"""Indices as they are, in the narrower of two integer types."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.errors import WireFormatError


@dataclass(frozen=True, slots=True)
class RawIndex:
    """Four bytes an index where there are at most 2^31 rows, else eight; any order."""

    id: ClassVar[int] = 1
    name: ClassVar[str] = "raw"
    lossless: ClassVar[bool] = True

    def encode(self, indices: Tensor, rows: int, ordered: bool) -> Tensor:
        """The indices in the narrowest type that holds every row's."""
        return as_bytes(indices.to(_narrowest(rows)))

    def decode(self, part: Tensor, count: int, rows: int) -> Tensor:
        """The indices, after a look at the smallest and the largest of them."""
        narrow = _narrowest(rows)
        expect_bytes(part, count * narrow.itemsize, f"{count} raw indices below {rows}")
        indices = part.view(narrow)
        if count:
            low, high = torch.stack(torch.aminmax(indices)).tolist()
            if low < 0 or high >= rows:
                raise WireFormatError(f"indices must be in [0, {rows}), found {low} … {high}")
        return indices.to(torch.int64)


def _narrowest(rows: int) -> torch.dtype:
    return torch.int32 if rows <= 2**31 else torch.int64
