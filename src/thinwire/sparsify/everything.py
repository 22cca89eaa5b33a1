"""Everything: the dense recipes' sparsifier."""

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor

from thinwire.kernels.lazy_sum import LazySum
from thinwire.types import Selection, Sparsifier, State, StepContext


@dataclass(frozen=True, slots=True)
class Everything(Sparsifier):
    """Selects all elements: the flat tensor itself, with no indices to send. Not a copy."""

    name = "everything"
    joins = True

    def select(self, x: Tensor, state: State, ctx: StepContext) -> Selection:
        """`x` itself."""
        return x

    def replays(self, state: State, step: int) -> Hashable | None:
        return ()

    def select_parts(self, x: LazySum, state: State, ctx: StepContext) -> Selection:
        """All of it, whatever is let past."""
        return x.dense()
