"""Ascending indices as regions: how many are in each, and where in its region each one is."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from thinwire.kernels import Implementation, implementation

BUILT: tuple[Implementation, ...] = ("reference", "triton")


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


def write(indices: Tensor, rows: int, form: Form) -> Tensor:
    """The bytes of all regions' counts, then those of all offsets."""
    body: Tensor = _implementation(indices).write(indices, rows, form)
    return body


def read(body: Tensor, count: int, rows: int, form: Form) -> tuple[Tensor, Tensor]:
    """The `count` indices, and (0-D bool) if counts add up and indices ascend below `rows`.

    The body has `form.size(count, rows)` bytes.
    """
    found: tuple[Tensor, Tensor] = _implementation(body).read(body, count, rows, form)
    return found


def _implementation(x: Tensor) -> Any:
    return implementation(__name__, x.device, BUILT)
