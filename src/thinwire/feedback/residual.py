"""Residual error feedback: what is not delivered is added to the next gradient."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.feedback._settle import take_delivered
from thinwire.kernels.addend import Addend
from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_integer, check_range
from thinwire.types import Feedback, Reduced, State, TensorSpec


@dataclass(frozen=True, slots=True)
class Residual(Feedback):
    """Accumulates gradients, not gradients times the learning rate.

    Ok-Topk's Algorithm 2 accumulates α·G; its reference code, and we, accumulate G: the
    learning rate stays the optimiser's, and a schedule does not reweigh what waits.

    `decay` is how much of what waits is left after a step (SparseLoCo has 0.95), and with
    `reset_every` all of it is dropped after so many steps (LoCo has 1,024). Then
    Σ (decay·residual + g) = P·update + Σ residual', and `stats()` says how much is forgotten.

    The residual buffer itself is what is selected from, so a step reads gradient and residual
    once and writes the residual once; settling touches only the delivered elements. A decay costs
    one more pass over the residual.
    """

    name = "residual"

    decay: float = 1.0
    reset_every: int = 0

    settles_in_place = True
    adds_lazily: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_range("decay", self.decay, 0, 1)
        check_integer("reset_every", self.reset_every, 0)

    @property
    def conserves(self) -> bool:
        """Unless something is forgotten."""
        return self.decay == 1 and not self.reset_every

    def at(self, step: int) -> "Residual":
        """The step after a reset finds nothing that waits."""
        resets = self.reset_every and step and step % self.reset_every == 0
        return replace(self, decay=0.0) if resets else self

    def replays(self, state: State, step: int) -> Hashable | None:
        return self.at(step)

    def forgets(self, state: State) -> Tensor | None:
        """What decays, and its share in the next reset."""
        if self.conserves:
            return None
        share = 1 - self.decay + (self.decay / self.reset_every if self.reset_every else 0.0)
        return state["residual"].abs() * share

    def init(self, spec: TensorSpec) -> State:
        return {"residual": torch.zeros(spec.numel, dtype=spec.accumulator, device=spec.device)}

    def before(self, grad: Tensor, state: State) -> Tensor:
        return self.lazy_sum(grad, state, clear=False).dense()

    def lazy_sum(
        self, grad: Tensor, state: State, clear: bool, bad: Tensor | None = None
    ) -> LazySum:
        """What `before` returns, still to be added up."""
        if self.decay != 1:
            state["residual"].mul_(self.decay)
        return LazySum(state["residual"], Addend(grad, clear=clear, bad=bad))

    def after(self, x: Tensor, reduced: Reduced, mean: Tensor, state: State) -> Tensor:
        take_delivered(reduced.delivered, state["residual"])
        return mean
