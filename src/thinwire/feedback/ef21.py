"""EF21 (Richtárik, Sokolov and Fatkhullin, 2021): send how the gradient changed."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.feedback._settle import add_delivered
from thinwire.settings import check_range
from thinwire.types import Feedback, Reduced, State, TensorSpec


@dataclass(frozen=True, slots=True)
class Ef21(Feedback):
    """Each rank keeps an estimate of its gradient and all keep the mean of these.

    c = C(g - estimate); estimate ← estimate + c; mean estimate ← mean estimate + mean(c), and
    the update is the mean estimate. It forgets old gradients on purpose, so it does not
    conserve; its law is that the update equals the mean of the estimates, and that a
    contractive selection brings the estimate closer to the gradient.

    With `momentum` m it is EF21-SGDM (Fatkhullin, Tyurin and Richtárik, NeurIPS 2023, Algorithm 1,
    where η = 1 - m): the estimate follows average ← m·average + (1 - m)·g instead of a single noisy
    gradient. The average starts from zero, where the paper's starts from a large batch.
    """

    name = "ef21"

    momentum: float = 0.0

    def __post_init__(self) -> None:
        check_range("momentum", self.momentum, 0, 1, open_high=True)

    def init(self, spec: TensorSpec) -> State:
        kept = ("estimate", "mean_estimate", *(("average",) if self.momentum else ()))
        return {
            key: torch.zeros(spec.numel, dtype=spec.accumulator, device=spec.device) for key in kept
        }

    def before(self, grad: Tensor, state: State) -> Tensor:
        if not self.momentum:
            return grad - state["estimate"]
        average = state["average"].lerp_(grad.to(state["average"].dtype), 1 - self.momentum)
        return average - state["estimate"]

    def after(self, x: Tensor, reduced: Reduced, mean: Tensor, state: State) -> Tensor:
        add_delivered(reduced.delivered, state["estimate"])
        return state["mean_estimate"].add_(mean)
