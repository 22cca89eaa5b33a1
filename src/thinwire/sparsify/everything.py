"""Everything: the dense recipes' sparsifier."""

from dataclasses import dataclass

from torch import Tensor

from thinwire.types import Selection, State, StepContext, TensorSpec


@dataclass(frozen=True, slots=True)
class Everything:
    """Selects all elements: the flat tensor itself, with no indices to send. Not a copy."""

    def init(self, spec: TensorSpec) -> State:
        """Nothing to remember."""
        return {}

    def select(self, x: Tensor, state: State, ctx: StepContext) -> Selection:
        """`x` itself."""
        return x
