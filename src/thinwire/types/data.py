"""What passes between pieces."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.types.products import Products

PADDING = 2**63 - 1  # in place of an index: nothing is there, and its value is zero

State = dict[str, Tensor]
"""What a piece remembers of a unit.

A feedback's tensors hold one value per element; a name that begins with "common_" says that it is
the same on every rank, one with "mean_" that it also is the mean of what they have, one with
"average_" that it is an average of a rank's own gradients. What sparsifiers and collectives
remember belongs to the whole unit; but what a collective calls "key/name" belongs to the tensor of
that name, wherever that goes.
"""


@dataclass(frozen=True, slots=True)
class Sparse:
    """Some elements of a flat tensor. Indices are int64 and unique; `ordered` means ascending.

    `values` is (k,), or (k, w) where each index names a row of w elements, as the gradient of
    an embedding does; w then divides `numel`, and indices count rows.

    `padded`: some may be `PADDING`, in ordered ones the last, so that a selection has a size that
    every rank knows although the host was not told how many elements it has.
    """

    indices: Tensor
    values: Tensor
    numel: int
    ordered: bool = True
    padded: bool = False

    @property
    def count(self) -> int:
        """How many indices there are."""
        return self.indices.numel()

    @property
    def width(self) -> int:
        """How many elements each index stands for."""
        return 1 if self.values.dim() == 1 else self.values.shape[1]

    @property
    def rows(self) -> int:
        """How many indices there could be."""
        return self.numel // self.width if self.width else 0

    def add_to(self, dense: Tensor, alpha: float = 1) -> Tensor:
        """Add `alpha` times these elements to the flat `dense`, in place."""
        target = dense if self.values.dim() == 1 else dense.view(self.rows, self.width)
        # Where there is padding, zero is added to the last element.
        indices = self.indices.clamp(max=len(target) - 1) if self.padded else self.indices
        target.index_add_(0, indices, self.values, alpha=alpha)
        return dense

    def to_dense(self) -> Tensor:
        """The flat tensor these elements come from, zero elsewhere."""
        return self.add_to(self.values.new_zeros(self.numel))

    def elements(self) -> "Sparse":
        """The same elements, one index each."""
        if self.values.dim() == 1:
            return self
        lanes = torch.arange(self.width, device=self.indices.device)
        indices = (self.indices[:, None] * self.width + lanes).reshape(-1)
        return Sparse(indices, self.values.reshape(-1), self.numel, self.ordered)

    def trimmed(self) -> "Sparse":
        """The same elements without padding. Makes the host wait for a device."""
        if not self.padded:
            return self
        there = self.indices != PADDING
        return Sparse(self.indices[there], self.values[there], self.numel, self.ordered)

    def sorted(self) -> "Sparse":
        """The same elements with ascending indices."""
        if self.ordered:
            return self
        indices, order = torch.sort(self.indices)
        return Sparse(indices, self.values[order], self.numel, True, self.padded)


Selection = Sparse | Tensor
"""What a sparsifier chose. A flat tensor stands for itself: everything, no indices needed."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """What an exchange brought. Over all ranks the `delivered` sum to `total`.

    None: nobody asked, or it was taken from the selection (`ExchangeContext.in_place`).

    A dense `total` may come with the `support` outside which it is zero (indices may repeat),
    so that dividing it need not read all of it; or as the mean, where the collective divided.
    """

    total: Selection
    delivered: Selection | Products | None
    support: Tensor | None = None
    is_mean: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The tensors of a unit in their order, and how they are selected from.

    Those `past` the selection travel whole. Of the others `each` has a selection of its own, or
    one runs over all of them.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    past: tuple[bool, ...]
    each: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether one selection runs over the whole unit."""
        return not self.each and not any(self.past)

    def parts(self) -> Iterator[tuple[str, int, int, bool]]:
        """Of each tensor its name, where it begins and ends, and whether it is let past."""
        start = 0
        for name, size, past in zip(self.names, self.sizes, self.past, strict=True):
            yield name, start, start + size, past
            start += size


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A unit's name and form: what one selection runs over, flattened."""

    name: str
    numel: int
    dtype: torch.dtype
    device: torch.device
    shapes: tuple[tuple[int, ...], ...] = ()  # of the unit's tensors, in their order
    layout: Layout | None = None  # None: one selection over all of it

    @property
    def accumulator(self) -> torch.dtype:
        """The dtype in which its sums and residuals are kept."""
        return accumulator(self.dtype)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Sums and residuals of half-precision gradients are kept in float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32
