"""Two bytes an index: where it is in its region, and how many each region has."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from thinwire.codec.index.ascending import AscendingIndex, check_on_cpu
from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.errors import WireFormatError


class _Form(NamedTuple):
    """A region has 2^bits rows; offsets inside it take `bits` bits."""

    bits: int
    offset: torch.dtype
    tally: torch.dtype
    mask: int  # what to keep of an offset once it is an int64

    def regions(self, rows: int) -> int:
        return -(-rows // (1 << self.bits))

    def size(self, count: int, rows: int) -> int:
        return self.regions(rows) * self.tally.itemsize + count * self.offset.itemsize


_NEAR = _Form(16, torch.int16, torch.int32, 2**16 - 1)
_FAR = _Form(32, torch.int32, torch.int64, 2**32 - 1)
_WHOLE = _Form(63, torch.int64, torch.int64, -1)


@dataclass(frozen=True, slots=True)
class RegionalIndex(AscendingIndex):
    """Offsets of 16 bits in regions of 65,536 rows, and a count for each region.

    Few operations, none of them sequential: as fast in torch on a GPU as on the CPU. Where rows
    are so many and indices so few that the counts would take most of it, regions have 2^32 rows
    or are one (the smallest of the three, which sender and receiver find alike).

    Part: a count for each region (32 bits; 64 in larger regions), then an offset for each index.
    """

    id: ClassVar[int] = 2
    name: ClassVar[str] = "regional"

    def _encode(self, indices: Tensor, rows: int) -> Tensor:
        check_on_cpu(indices, rows)
        form = _smallest(indices.numel(), rows)
        # searchsorted instead of bincount, which makes the host wait for the GPU.
        starts = torch.arange(form.regions(rows), device=indices.device) << form.bits
        ends = torch.searchsorted(indices, starts[1:])
        tally = ends.diff(
            prepend=ends.new_zeros(min(1, starts.numel())),
            append=ends.new_full((min(1, starts.numel()),), indices.numel()),
        )
        return torch.cat((as_bytes(tally.to(form.tally)), as_bytes(indices.to(form.offset))))

    def _decode(self, body: Tensor, count: int, rows: int) -> Tensor:
        form = _smallest(count, rows)
        expect_bytes(body, form.size(count, rows), f"{count} indices in regions of {rows} rows")
        table_end = form.regions(rows) * form.tally.itemsize
        tally = body[:table_end].view(form.tally).to(torch.int64)
        offsets = body[table_end:].view(form.offset).to(torch.int64)
        within = bool(((tally >= 0) & (tally <= count)).all())
        if not within or int(tally.sum()) != count:
            raise WireFormatError(f"the regions' counts must add up to {count}")
        region = torch.arange(tally.numel(), device=body.device) << form.bits
        indices = region.repeat_interleave(tally, output_size=count)
        indices |= offsets & form.mask
        ascending = bool((indices[1:] > indices[:-1]).all())
        if not ascending or (count and not 0 <= int(indices[0]) <= int(indices[-1]) < rows):
            raise WireFormatError(f"offsets must ascend in each region and stay below {rows}")
        return indices


def _smallest(count: int, rows: int) -> _Form:
    return min((_NEAR, _FAR, _WHOLE), key=lambda form: form.size(count, rows))
