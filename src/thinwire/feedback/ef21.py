"""EF21 (Richtárik, Sokolov and Fatkhullin, 2021): send how the gradient changed."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.feedback._settle import add_delivered
from thinwire.types import Feedback, Reduced, State, TensorSpec


@dataclass(frozen=True, slots=True)
class Ef21(Feedback):
    """Each rank keeps an estimate of its gradient and all keep the mean of these.

    c = C(g - estimate); estimate ← estimate + c; mean estimate ← mean estimate + mean(c), and
    the update is the mean estimate. It forgets old gradients on purpose, so it does not
    conserve; its law is that the update equals the mean of the estimates, and that a
    contractive selection brings the estimate closer to the gradient.
    """

    name = "ef21"

    def init(self, spec: TensorSpec) -> State:
        def zeros() -> Tensor:
            return torch.zeros(spec.numel, dtype=spec.accumulator, device=spec.device)

        return {"estimate": zeros(), "mean_estimate": zeros()}

    def before(self, grad: Tensor, state: State) -> Tensor:
        return grad - state["estimate"]

    def after(self, x: Tensor, reduced: Reduced, mean: Tensor, state: State) -> Tensor:
        add_delivered(reduced.delivered, state["estimate"])
        return state["mean_estimate"].add_(mean)
