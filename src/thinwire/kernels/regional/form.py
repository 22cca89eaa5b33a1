"""The layout of regions."""

from collections.abc import Iterable
from typing import NamedTuple

import torch


class Form(NamedTuple):
    """A region has 2^bits rows; offsets inside it take `bits` bits.

    `packed` offsets take no bit more, and are one more where their number is odd: a zero.
    """

    bits: int
    offset: torch.dtype
    tally: torch.dtype
    mask: int  # what to keep of an offset once it is an int64
    packed: bool = False

    def regions(self, rows: int) -> int:
        """How many there are."""
        return -(-rows // (1 << self.bits))

    def slots(self, count: int) -> int:
        """How many offsets are written for so many indices."""
        return count + count % 2 if self.packed else count

    def offset_bytes(self, count: int) -> int:
        """Bytes of the offsets."""
        if self.packed:
            return self.slots(count) * self.bits // 8
        return count * self.offset.itemsize

    def size(self, count: int, rows: int) -> int:
        """Bytes of the counts and the offsets."""
        return self.regions(rows) * self.tally.itemsize + self.offset_bytes(count)


TWELVE = Form(12, torch.int32, torch.int16, 2**12 - 1, packed=True)
FORMS = (
    Form(16, torch.int16, torch.int32, 2**16 - 1),
    Form(32, torch.int32, torch.int64, 2**32 - 1),
    Form(63, torch.int64, torch.int64, -1),
)


def smallest(forms: Iterable[Form], count: int, rows: int) -> Form:
    """The form that takes the fewest bytes, which sender and receiver find alike."""
    return min(forms, key=lambda form: form.size(count, rows))
