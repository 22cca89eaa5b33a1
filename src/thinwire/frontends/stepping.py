"""Whose steps are meant, where optimisers lie in each other."""

import torch

from thinwire.errors import RecipeError
from thinwire.frontends.handle import with_hooks
from thinwire.frontends.torch_private import calls_hooks

PASSES_ON = ("accelerate", "lightning", "lightning_fabric", "pytorch_lightning")
"""Packages whose optimisers step the one inside and do nothing to the parameters themselves."""


def hooked(optimizer: object, call: str, whole: bool = False) -> torch.optim.Optimizer:
    """The outermost optimiser that calls hooks around its steps: given, or inside of what is.

    `whole`: nothing around it may move the parameters after its step, as a lookahead does.
    """
    with_hooks(optimizer, call)
    one: object = optimizer
    while not calls_hooks(one):
        inner = getattr(one, "optimizer", None)
        if inner is None or (whole and not _passes_on(one)):
            raise RecipeError(
                f"{type(one).__name__} calls no hooks around its step, which thinwire would not "
                "hear of: call super().__init__(parameters, defaults) in it, or give the "
                f"optimiser inside of it to {call}"
            )
        one = inner
    assert isinstance(one, torch.optim.Optimizer)
    return one


def _passes_on(optimizer: object) -> bool:
    return any(kind.__module__.partition(".")[0] in PASSES_ON for kind in type(optimizer).__mro__)
