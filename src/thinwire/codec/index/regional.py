"""Two bytes per index: where it is in its region, and how many each region has."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.codec.index.ascending import ASCENDING, AscendingIndex, check_on_cpu
from thinwire.codec.parts import expect_bytes
from thinwire.errors import WireFormatError
from thinwire.kernels.regional import (
    FORMS,
    Form,
    read,
    read_parts,
    smallest,
    write,
    write_parts,
    write_rows,
)


@dataclass(frozen=True, slots=True)
class RegionalIndex(AscendingIndex):
    """Offsets of 16 bits in regions of 65,536 rows, and a count for each region.

    None of it is sequential: one launch either way on a GPU. Where rows are so many and indices so
    few that the counts would take most of it, regions have 2^32 rows or are one (the smallest of
    the three, which sender and receiver find alike).

    Part: a count for each region (32 bits; 64 in larger regions), then an offset for each index.
    """

    id = 2
    name = "regional"
    steady = True
    draws = False
    forms: ClassVar[tuple[Form, ...]] = FORMS

    def _encode(self, indices: Tensor, rows: int) -> Tensor:
        check_on_cpu(indices, rows)
        return write(indices, rows, self._smallest(indices.numel(), rows))

    def _decode(self, body: Tensor, count: int, rows: int) -> Tensor:
        form = self._smallest(count, rows)
        expect_bytes(body, form.size(count, rows), f"{count} indices in regions of {rows} rows")
        indices, sound = read(body, count, rows, form)
        if not bool(sound):
            raise WireFormatError(
                f"counts must add up to {count}, offsets ascend in their regions below {rows}"
            )
        return indices

    def encode_rows(self, indices: Tensor, rows: int) -> Tensor:
        bodies = write_rows(indices, rows, self._smallest(indices.shape[1], rows))
        return torch.nn.functional.pad(bodies, (0, 1), value=ASCENDING)

    def write_rows(self, indices: Tensor, rows: int, parts: Tensor) -> None:
        write_parts(indices, rows, self._smallest(indices.shape[1], rows), parts)

    def size(self, count: int, rows: int) -> int:
        return self._smallest(count, rows).size(count, rows) + 1

    def decode_rows(self, parts: Tensor, count: int, rows: int) -> tuple[Tensor, Tensor]:
        form = self._smallest(count, rows)
        expect_bytes(
            parts, form.size(count, rows) + 1, f"{count} indices in regions of {rows} rows"
        )
        return read_parts(parts, count, rows, form)

    def _smallest(self, count: int, rows: int) -> Form:
        return smallest(self.forms, count, rows)
