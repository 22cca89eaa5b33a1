"""Parameters that a front end was not told of: each rank would train its own, without a word."""

from collections.abc import Collection, Iterator, Sequence
from weakref import WeakSet

import torch
from torch import Tensor, nn

from thinwire.errors import RecipeError
from thinwire.frontends.handle import plain


def refuse_strangers(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Raise a `RecipeError` where optimisers train what is not the model's."""
    own = set(model.parameters())
    stepped = (p for one in optimizers for group in one.param_groups for p in group["params"])
    foreign = [p for p in stepped if p.requires_grad and p not in own]
    if foreign:
        raise RecipeError(
            f"the optimiser has {len(foreign)} parameters that are not the model's, one of shape "
            f"{tuple(foreign[0].shape)}: make it from model.parameters(), or pass a model that "
            "has them all"
        )


class Newcomers:
    """Looks for those that came later, among a model's parameters and its optimisers'."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        known: Collection[Tensor],
        caller: str,
        end: str = "close()",
    ) -> None:
        """`known`: those that are averaged. What else there is now was left out on purpose.

        `end`: what is called before `caller` is called again.
        """
        self._model, self._optimizers = model, WeakSet(optimizers)  # whose hooks hold the handle
        self._caller, self._end = caller, end
        self._known, self._there = frozenset(known), frozenset(model.parameters())

    def refuse(self) -> None:
        """Raise a `RecipeError` that names one that has a gradient, and is not averaged."""
        for p in self._suspects():
            if not p.requires_grad or p.grad is None:
                continue
            names = (repr(plain(n)) for n, one in self._model.named_parameters() if one is p)
            name = next(names, f"a parameter of shape {tuple(p.shape)}")
            before = "was frozen" if p in self._there else "was not the model's"
            raise RecipeError(
                f"{name} {before} when {self._caller}() was called, and so is not averaged: "
                f"{self._end} the handle and call {self._caller}() again"
            )

    def _suspects(self) -> Iterator[Tensor]:
        """What may be trained, and is not averaged."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                yield from (p for p in group["params"] if p not in self._known)
        yield from (p for p in self._model.parameters() if p not in self._there)
