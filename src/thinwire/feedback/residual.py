"""Residual error feedback: what is not delivered is added to the next gradient."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.feedback._settle import take_delivered
from thinwire.kernels.addend import Addend
from thinwire.kernels.lazy_sum import LazySum
from thinwire.types import Feedback, Reduced, State, TensorSpec


@dataclass(frozen=True, slots=True)
class Residual(Feedback):
    """Accumulates gradients, not gradients times the learning rate.

    Ok-Topk's Algorithm 2 accumulates α·G; its reference code, and we, accumulate G: the
    learning rate stays the optimiser's, and a schedule does not reweigh what waits.

    The residual buffer itself is what is selected from, so a step reads gradient and residual
    once and writes the residual once; settling touches only the delivered elements.
    """

    name = "residual"

    conserves = True
    adds_lazily: ClassVar[bool] = True

    def init(self, spec: TensorSpec) -> State:
        return {"residual": torch.zeros(spec.numel, dtype=spec.accumulator, device=spec.device)}

    def before(self, grad: Tensor, state: State) -> Tensor:
        return self.lazy_sum(grad, state, clear=False).dense()

    def lazy_sum(
        self, grad: Tensor, state: State, clear: bool, bad: Tensor | None = None
    ) -> LazySum:
        """What `before` returns, still to be added up."""
        return LazySum(state["residual"], Addend(grad, clear=clear, bad=bad))

    def after(self, x: Tensor, reduced: Reduced, mean: Tensor, state: State) -> Tensor:
        take_delivered(reduced.delivered, state["residual"])
        return mean
