"""What passes between pieces."""

from dataclasses import dataclass

import torch
from torch import Tensor

State = dict[str, Tensor]
"""What a piece remembers of a unit.

A feedback's tensors hold one value per element; a name that begins with "mean_" says that it is
the same on every rank. What sparsifiers and collectives remember belongs to the whole unit.
"""


@dataclass(frozen=True, slots=True)
class Sparse:
    """Some elements of a flat tensor. Indices are int64 and unique; `ordered` means ascending.

    `values` is (k,), or (k, w) where each index names a row of w elements, as the gradient of
    an embedding does; w then divides `numel`, and indices count rows.
    """

    indices: Tensor
    values: Tensor
    numel: int
    ordered: bool = True

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
        target.index_add_(0, self.indices, self.values, alpha=alpha)
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

    def sorted(self) -> "Sparse":
        """The same elements with ascending indices."""
        if self.ordered:
            return self
        indices, order = torch.sort(self.indices)
        return Sparse(indices, self.values[order], self.numel, True)


Selection = Sparse | Tensor
"""What a sparsifier chose. A flat tensor stands for itself: everything, no indices needed."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """What an exchange brought. Over all ranks the `delivered` sum to `total`.

    A dense `total` may come with the `support` outside which it is zero (indices may repeat),
    so that dividing it need not read all of it.
    """

    total: Selection
    delivered: Selection
    support: Tensor | None = None


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A unit's name and form: what one selection runs over, flattened."""

    name: str
    numel: int
    dtype: torch.dtype
    device: torch.device
    shapes: tuple[tuple[int, ...], ...] = ()  # of the unit's tensors, in their order

    @property
    def accumulator(self) -> torch.dtype:
        """The dtype in which its sums and residuals are kept."""
        return accumulator(self.dtype)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Sums and residuals of half-precision gradients are kept in float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32
