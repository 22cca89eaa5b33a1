"""The layout of regions."""

from typing import NamedTuple

import torch


class Form(NamedTuple):
    """A region has 2^bits rows; offsets inside it take `bits` bits."""

    bits: int
    offset: torch.dtype
    tally: torch.dtype
    mask: int  # what to keep of an offset once it is an int64

    def regions(self, rows: int) -> int:
        """How many there are."""
        return -(-rows // (1 << self.bits))

    def size(self, count: int, rows: int) -> int:
        """Bytes of the counts and the offsets."""
        return self.regions(rows) * self.tally.itemsize + count * self.offset.itemsize
