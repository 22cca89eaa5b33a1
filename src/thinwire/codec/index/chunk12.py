"""12 bits per index: where it is in its chunk of 4096, and how many each chunk has."""

from dataclasses import dataclass
from typing import ClassVar

from thinwire.codec.index.regional import RegionalIndex
from thinwire.kernels.regional import FORMS, TWELVE, Form


@dataclass(frozen=True, slots=True)
class Chunk12Index(RegionalIndex):
    """Offsets of 12 bits in chunks of 4096 rows, as DeMo and SparseLoCo send them.

    12.25 bits an index with 64 of each chunk: every chunk also has a count, of 16 bits. So any
    selection can be sent (tensors let past, warm-ups, short chunks, padding), where those two know
    that each chunk has as many, and a payload's size follows from how many indices there are.
    Where these are fewer than one in 1,170 rows, the regions are those of `regional`.

    Part: a count for each chunk (16 bits), then the offsets, two in three bytes, lowest bits
    first; a zero follows an odd number of them.
    """

    id = 13
    name = "chunk12"
    forms: ClassVar[tuple[Form, ...]] = (TWELVE, *FORMS)
