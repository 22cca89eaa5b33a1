"""How true updates are: beside the mean of the gradients themselves, every so many steps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from thinwire.comm import GroupCommunicator
from thinwire.settings import check_integer
from thinwire.units.unit import Unit


@dataclass(frozen=True, slots=True)
class Likeness:
    """Of an update to the mean gradient g: what cosine and relative error are made of."""

    dot: float = 0.0
    update: float = 0.0  # squared norms
    mean: float = 0.0

    def __add__(self, other: "Likeness") -> "Likeness":
        return Likeness(self.dot + other.dot, self.update + other.update, self.mean + other.mean)

    @property
    def cosine(self) -> float | None:
        """None where one of them is zero."""
        lengths = sqrt(self.update * self.mean)
        return max(-1.0, min(1.0, self.dot / lengths)) if lengths else None

    @property
    def relative_error(self) -> float | None:
        """‖update - g‖ / ‖g‖."""
        squared = max(0.0, self.update - 2 * self.dot + self.mean)
        return sqrt(squared / self.mean) if self.mean else None

    def row(self) -> dict[str, float | None]:
        """As `stats()` shows it."""
        return {"cosine": self.cosine, "relative_error": self.relative_error}


class Truth:
    """Compares updates with dense means, for one dense allreduce in every `every`-th step.

    Its memory is a copy of the gradients in those steps. Units whose feedback makes steps of
    gradients (`adam`) are left out: those are no means. With momentum correction, update and mean
    differ also by the momentum.
    """

    def __init__(self, comm: GroupCommunicator, every: int) -> None:
        check_integer("truth", every, 0)
        self._comm, self.every = comm, every
        self._kept: list[tuple[str, Tensor, Tensor]] = []  # the gradient's own memory, and a copy
        self._step, self._waited = 0, 0.0
        self._last: dict[str, Likeness] = {}

    def keep(self, work: Iterable[tuple[Unit, Sequence[Tensor]]]) -> None:
        """Before a step: copies of the gradients whose turn it is, the same ones on all ranks."""
        for unit, grads in work:
            if self._is_due(unit):
                self._step = unit.step + 1
                named = zip(unit.names, grads, strict=True)
                self._kept += [(name, grad, grad.clone()) for name, grad in named]

    def forget(self) -> None:
        """The step came to nothing."""
        self._kept = []

    def compare(self, units: Iterable[Unit]) -> None:
        """After the step, when the updates lie where the gradients did."""
        if not self._kept:
            return
        for name, update, gradient in self._kept:
            if update.is_cuda:
                torch.cuda.synchronize(update.device)  # it was written on a stream of its own
            mean = self._comm.all_reduce(gradient.float().flatten()).div_(self._comm.size)
            ours = update.flatten().float()
            parts = torch.stack([ours @ mean, ours @ ours, mean @ mean]).tolist()
            self._last[name] = Likeness(*parts)
        self._kept = []
        self._waited = _waiting(units)

    def row(self, units: Iterable[Unit]) -> dict[str, Any] | None:
        """The last comparison, and what the error would be now by what waits; None before it.

        Between two comparisons the error is taken to grow as the norm of this rank's residuals.
        """
        if not self._last:
            return None
        total = sum(self._last.values(), Likeness())
        error = total.relative_error
        if error is not None and self._waited:
            error *= sqrt(_waiting(units) / self._waited)
        return total.row() | {
            "step": self._step,
            "every": self.every,
            "relative_error_now": error,
            "tensors": {name: likeness.row() for name, likeness in self._last.items()},
        }

    def _is_due(self, unit: Unit) -> bool:
        if not self.every or unit.pipeline.feedback.is_step:
            return False
        return (unit.step + 1) % self.every == 0


def _waiting(units: Iterable[Unit]) -> float:
    """The squared norm of all residuals on this rank."""
    kept = (unit.state["feedback"].get("residual") for unit in units)
    return sum(float(residual.float().square().sum()) for residual in kept if residual is not None)
