"""A flat tensor as low rank has it: products of thin factors in place of matrices."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire import foreach


@dataclass(frozen=True, slots=True)
class Matrices:
    """Where matrices of one shape lie in a flat tensor: `every` elements from one to the next."""

    count: int
    rows: int
    columns: int
    start: int
    every: int

    def of(self, flat: Tensor) -> Tensor:
        """A view of them: (count, rows, columns)."""
        size, strides = (self.count, self.rows, self.columns), (self.every, self.columns, 1)
        return flat.as_strided(size, strides, flat.storage_offset() + self.start)


@dataclass(frozen=True, slots=True)
class Products:
    """Matrices as `left`ᵀ·`right`, and of all that lies between them the values.

    Left factors are (count, r, rows), right ones (count, r, columns): libraries read them so at up
    to ten times the speed. A stretch is the place of its first element, and its values. Nothing
    overlaps.
    """

    products: Sequence[tuple[Matrices, Tensor, Tensor]]
    stretches: Sequence[tuple[int, Tensor]] = ()

    def add_to(self, dense: Tensor, alpha: float = 1) -> Tensor:
        """Add `alpha` times this to the flat `dense`, in place and without another of its size."""
        for where, left, right in self.products:
            where.of(dense).baddbmm_(left.mT, right, alpha=alpha)
        if self.stretches:
            foreach.add_(self._places(dense), self._values(), alpha=alpha)
        return dense

    def write_to(self, dense: Tensor) -> Tensor:
        """Put this in the place of what the flat `dense` holds, all of which it covers."""
        for where, left, right in self.products:
            torch.bmm(left.mT, right, out=where.of(dense))
        if self.stretches:
            foreach.copy_(self._places(dense), self._values())
        return dense

    def _places(self, dense: Tensor) -> list[Tensor]:
        return [dense[start : start + values.numel()] for start, values in self.stretches]

    def _values(self) -> list[Tensor]:
        return [values for _, values in self.stretches]
