"""Finite numbers whose sum is not: gradients that are too large for what waits of them."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thinwire.engine.finite import largest_magnitudes
from thinwire.pipeline import Pipeline
from thinwire.types import accumulator

if TYPE_CHECKING:
    from thinwire.engine.roster import Roster


class Headroom:
    """Knows without looking that nothing can overflow, as long as that is so.

    What waits grows by no more than the largest gradient of each step, and with momentum by the
    sum of those; only where this bound reaches the limit the state itself is read, and the bound
    begins anew from what is found there. The limit is that of the dtype in which ranks add up, over
    the number of ranks; for an update in float16 it is 65,504. Where a recipe squares gradients, or
    adds up many elements of one, a gradient alone may not exceed the limit's root.
    """

    def __init__(self, roster: "Roster", ranks: int) -> None:
        self._roster, self._ranks = roster, ranks
        self._waiting, self._speed = 0.0, 0.0
        self._alone: dict[str, float] = {}  # by name: what a gradient may not exceed

    def lose_sight(self) -> None:
        """The state was loaded or rescaled, or nobody looked at a gradient."""
        self._waiting = math.inf

    def too_large(self, grads: Mapping[str, Tensor], largest: float) -> list[str]:
        """Which of these finite gradients may not fit, with what waits; `largest` of them all."""
        self._speed += largest
        self._waiting += self._speed
        limits = [self._limit(grad) for grad in grads.values()]
        alone = [self._limit_alone(name, grad) for name, grad in grads.items()]
        if not grads or (self._waiting <= min(limits) and largest <= min(alone)):
            return []
        self._waiting = self._speed = self._roster.largest_waiting()
        self._waiting += largest
        self._speed += largest
        found = zip(grads, largest_magnitudes(grads), limits, alone, strict=True)
        return [
            name
            for name, magnitude, limit, most in found
            if math.isfinite(magnitude)
            and (magnitude > most or magnitude + self._roster.largest_waiting(name) > limit)
        ]

    def _limit(self, grad: Tensor) -> float:
        sums = torch.finfo(accumulator(grad.dtype)).max / self._ranks
        return min(sums, torch.finfo(grad.dtype).max)

    def _limit_alone(self, name: str, grad: Tensor) -> float:
        if name not in self._alone:
            limit = torch.finfo(accumulator(grad.dtype)).max
            recipes = self._roster.pipeline.of_tensor(name).alternatives
            self._alone[name] = math.sqrt(limit) if any(map(_multiplies, recipes)) else limit
        return self._alone[name]


def _multiplies(recipe: Pipeline) -> bool:
    kinds = [recipe.collective.takes, (recipe.row_collective or recipe.collective).takes]
    return recipe.feedback.squares or "linear" in kinds
