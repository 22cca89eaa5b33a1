"""Momentum correction (DGC, sections 3.1 and 3.2), DRAGONN's error feedback."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.feedback._settle import take_delivered
from thinwire.kernels.addend import Addend
from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_range
from thinwire.types import Feedback, Reduced, State, TensorSpec


@dataclass(frozen=True, slots=True)
class Momentum(Feedback):
    """u ← m·u + g; v ← v + u; send from v; where v was delivered, u starts anew (masking).

    The momentum lives here, so the optimiser must be plain SGD. `clip_norm` bounds the local
    gradient's L2 norm before it is accumulated (section 3.2): for a global bound c over P ranks
    pass c/√P. The paper clips over the whole model; we clip over the unit, which is all there
    is to see while the backward pass still runs.

    Conserves in this sense: Σ (v + m·u + g) = P·update + Σ v'. The velocity that masking drops
    was already counted in v.
    """

    name = "momentum"

    factor: float = 0.9
    masking: bool = True
    clip_norm: float | None = None

    conserves: ClassVar[bool] = True

    @property
    def adds_lazily(self) -> bool:
        """Clipping reads all of the gradient first."""
        return self.clip_norm is None

    def __post_init__(self) -> None:
        check_range("factor", self.factor, 0, 1, open_high=True)
        if self.clip_norm is not None:
            check_range("clip_norm", self.clip_norm, 0, open_low=True)

    def replays(self, state: State, step: int) -> Hashable | None:
        return ()

    def init(self, spec: TensorSpec) -> State:
        def zeros() -> Tensor:
            return torch.zeros(spec.numel, dtype=spec.accumulator, device=spec.device)

        return {"velocity": zeros(), "residual": zeros()}

    def before(self, grad: Tensor, state: State) -> Tensor:
        return self.lazy_sum(grad, state, clear=False).dense()

    def lazy_sum(
        self, grad: Tensor, state: State, clear: bool, bad: Tensor | None = None
    ) -> LazySum:
        """What `before` returns, still to be added up."""
        velocity, residual = state["velocity"], state["residual"]
        if self.clip_norm is None:
            return LazySum(residual, Addend(grad, velocity, self.factor, clear, bad))
        norm = torch.linalg.vector_norm(grad, dtype=velocity.dtype)
        scale = (self.clip_norm / norm.clamp(min=self.clip_norm)).to(velocity.dtype)
        velocity.mul_(self.factor).addcmul_(grad.to(velocity.dtype), scale)
        if clear:
            grad.zero_()
        return LazySum(residual, Addend(velocity))

    def after(self, x: Tensor, reduced: Reduced, mean: Tensor, state: State) -> Tensor:
        masked = state["velocity"] if self.masking else None
        take_delivered(reduced.delivered, state["residual"], masked)
        return mean
