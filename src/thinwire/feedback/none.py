"""No feedback: what is not sent is lost."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from thinwire.types import Reduced, State, TensorSpec


@dataclass(frozen=True, slots=True)
class NoFeedback:
    """For recipes that send everything, or whose rounding is unbiased."""

    conserves: ClassVar[bool] = False

    def init(self, spec: TensorSpec) -> State:
        return {}

    def before(self, grad: Tensor, state: State) -> Tensor:
        return grad

    def after(self, x: Tensor, reduced: Reduced, mean: Tensor, state: State) -> Tensor:
        return mean
