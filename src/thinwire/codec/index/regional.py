"""Two bytes per index: where it is in its region, and how many each region has."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codec.index.ascending import ASCENDING, AscendingIndex, check_on_cpu
from thinwire.codec.parts import expect_bytes
from thinwire.errors import WireFormatError
from thinwire.kernels.regional import Form, read, read_rows, write, write_rows

FORMS = (
    Form(16, torch.int16, torch.int32, 2**16 - 1),
    Form(32, torch.int32, torch.int64, 2**32 - 1),
    Form(63, torch.int64, torch.int64, -1),
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

    def _encode(self, indices: Tensor, rows: int) -> Tensor:
        check_on_cpu(indices, rows)
        return write(indices, rows, _smallest(indices.numel(), rows))

    def _decode(self, body: Tensor, count: int, rows: int) -> Tensor:
        form = _smallest(count, rows)
        expect_bytes(body, form.size(count, rows), f"{count} indices in regions of {rows} rows")
        indices, sound = read(body, count, rows, form)
        if not bool(sound):
            raise WireFormatError(
                f"counts must add up to {count}, offsets ascend in their regions below {rows}"
            )
        return indices

    def encode_rows(self, indices: Tensor, rows: int) -> Tensor:
        bodies = write_rows(indices, rows, _smallest(indices.shape[1], rows))
        return torch.nn.functional.pad(bodies, (0, 1), value=ASCENDING)

    def size(self, count: int, rows: int) -> int:
        return _smallest(count, rows).size(count, rows) + 1

    def decode_rows(self, parts: Tensor, count: int, rows: int) -> tuple[Tensor, Tensor]:
        form = _smallest(count, rows)
        expect_bytes(
            parts, form.size(count, rows) + 1, f"{count} indices in regions of {rows} rows"
        )
        indices, sound = read_rows(parts[:, :-1], count, rows, form)
        return indices, sound & (parts[:, -1] == ASCENDING).all()


def _smallest(count: int, rows: int) -> Form:
    return min(FORMS, key=lambda form: form.size(count, rows))
