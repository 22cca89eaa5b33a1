"""A newcomer's error that nothing else shows: momentum in the recipe, and in the optimiser too."""

import warnings
import weakref
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook


class TakesPart:
    """An optimiser that leaves its momentum to the recipe."""


def warn_of_momentum(corrected: Collection[Tensor]) -> None:
    """Look at the first step that these parameters are stepped by, and no further.

    The hook stays, with nothing to look at: PyTorch cannot take one away while it calls them.
    """
    watched = {id(p): weakref.ref(p) for p in corrected}

    def is_watched(p: Tensor) -> bool:
        known = watched.get(id(p))
        return known is not None and known() is p  # ids of what is gone come again

    def look(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            stepped = [p for p in group["params"] if is_watched(p) and p.grad is not None]
            if not stepped:
                continue
            watched.clear()
            if group.get("momentum") and not isinstance(optimizer, TakesPart):
                warnings.warn(
                    f"the recipe carries the momentum itself, and {type(optimizer).__name__} has "
                    f"momentum={group['momentum']} on top of it: set it to 0",
                    stacklevel=3,
                )
            return

    register_optimizer_step_pre_hook(look)
