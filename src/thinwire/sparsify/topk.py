"""Exact top-k."""

from dataclasses import dataclass

from torch import Tensor

from thinwire.density import check_density, target_count
from thinwire.sparsify._common import largest, take
from thinwire.types import Sparse, State, StepContext, TensorSpec


@dataclass(frozen=True, slots=True)
class TopK:
    """The k = density·n elements of largest magnitude: exactly k, among equals the lower index.

    gTop-k, section II: each worker's local selection. Its mask `|x| > thr`, with thr the k-th
    magnitude, keeps k - 1 elements or fewer (deviation: ties at the threshold fill up to k).
    """

    density: float = 0.01

    def __post_init__(self) -> None:
        check_density(self.density)

    def init(self, spec: TensorSpec) -> State:
        """Nothing to remember."""
        return {}

    def select(self, x: Tensor, state: State, ctx: StepContext) -> Sparse:
        """Exactly k elements."""
        return take(x, largest(x, target_count(x.numel(), self.density, ctx.density)))
