"""A `GradScaler` leaves out steps of one rank alone; those who count them hear of each."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

import torch

Counting = Callable[[torch.optim.Optimizer], AbstractContextManager[None]]
"""What is put around each step of the scaler, with the optimiser that it is given."""


class ScalerSteps:
    """In the place of a scaler's own `step` while somebody counts: one, for all who do."""

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        self._scaler, self._own = scaler, scaler.step
        self._counting: list[Counting] = []
        scaler.step = self  # type: ignore[method-assign]

    @classmethod
    def of(cls, scaler: torch.amp.GradScaler) -> "ScalerSteps":
        """Those that are counted already, or from now on."""
        if not hasattr(scaler, "get_scale"):
            raise TypeError(f"grad_scaler={scaler!r} must be the GradScaler itself")
        step: object = scaler.step
        return step if isinstance(step, ScalerSteps) else cls(scaler)

    def __call__(
        self, optimizer: torch.optim.Optimizer, *args: object, **kwargs: object
    ) -> float | None:
        """As the scaler's own."""
        with ExitStack() as around:
            for counting in tuple(self._counting):
                around.enter_context(counting(optimizer))
            return self._own(optimizer, *args, **kwargs)

    def begin(self, counting: Counting) -> None:
        """Put this around every step, until `end`."""
        self._counting.append(counting)

    def end(self, counting: Counting) -> None:
        """Unless that was done. The last one gives the scaler its own `step` back."""
        if counting in self._counting:
            self._counting.remove(counting)
        if not self._counting and self._scaler.step is self:
            self._scaler.step = self._own  # type: ignore[method-assign]
