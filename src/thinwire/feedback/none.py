"""No feedback: what is not sent is lost."""

from dataclasses import dataclass

from torch import Tensor

from thinwire.types import Feedback, Reduced, State


@dataclass(frozen=True, slots=True)
class NoFeedback(Feedback):
    """For recipes that send everything, or whose rounding is unbiased."""

    name = "none"

    def before(self, grad: Tensor, state: State) -> Tensor:
        return grad

    def after(self, x: Tensor, reduced: Reduced, mean: Tensor, state: State) -> Tensor:
        return mean
