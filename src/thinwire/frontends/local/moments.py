"""Adam's moments as they would be, had the gradients of all ranks been averaged: what a rank can
know of them without another byte on the wire. Ours, and no paper's.

In v a rank alone has P times the variance of the mean gradient, so that its steps are too short;
its m follows its own examples, and leads it away from the others again after they have met.

    v ← β₂·v + (1 - β₂)·(g²/P + (1 - 1/P)·m²)  in a step, where Adam has g² alone
    m ← m + κ·β₁^τ·(√v + ε)·(Δ - Δᵢ)/lr        when a mean arrives, τ steps after it was sent

What v takes is in expectation the square of the mean gradient, where m is what gradients have in
common; that counts most for what few examples move, as rows of an embedding. (√v + ε)·Δᵢ/lr is the
sum of this rank's m in a round, and what it differs by from the mean of all tells most of what the
last m does: κ is the least squares of one by the other, for gradients that differ independently
from step to step. It leaves 12 % of the variance with rounds of 2 steps, 27 % with 5, and 74 % with
30. Here m and v are without their bias, and lr is the mean of the round's.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from thinwire import foreach
from thinwire.errors import RecipeError
from thinwire.frontends.torch_private import is_inner_step
from thinwire.types import accumulator

Group = dict[str, Any]
RATES = 1000  # the latest learning rates of a group: longer rounds go by the mean of these


class MeanMoments:
    """Hooks around Adam's steps, which see to v; `bring` sees to m.

    Gradients must not change between the hook and the step, as by a hook that is registered later.
    """

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        parameters: Mapping[str, nn.Parameter],
        ranks: int,
    ) -> None:
        """`ranks` have examples of their own."""
        self._names, self._ranks = {p: name for name, p in parameters.items()}, ranks
        for optimizer in optimizers:
            _refuse_others(optimizer)
        # Held weakly: the optimisers' hooks hold this.
        self._steps = WeakKeyDictionary[torch.optim.Optimizer, int]()
        self._rates = WeakKeyDictionary[torch.optim.Optimizer, list[deque[float]]](
            {one: [deque[float](maxlen=RATES) for _ in one.param_groups] for one in optimizers}
        )
        self._hooks = [
            *(one.register_step_pre_hook(self._before_step) for one in optimizers),
            *(one.register_step_post_hook(self._after_step) for one in optimizers),
        ]

    def state(self) -> list[list[float]]:
        """By group, the latest learning rates; the moments themselves are the optimisers'."""
        return [list(rates) for _, _, rates in self._groups()]

    def load(self, state: Sequence[Sequence[float]]) -> None:
        """The optimisers were loaded; how many steps they have made is to be asked again."""
        self._steps.clear()
        for (_, _, rates), saved in zip(self._groups(), state, strict=False):  # or none is known
            rates.clear()
            rates.extend(saved)

    def close(self) -> None:
        """Leave the optimisers alone."""
        for hook in self._hooks:
            hook.remove()

    @torch.no_grad()
    def bring(
        self, moved: Mapping[str, Tensor], means: Mapping[str, Tensor], every: int, since: int
    ) -> None:
        """Bring m to the mean, by what this rank `moved` in rounds of `every` steps, of which the
        last ended `since` steps ago.
        """
        for optimizer, group, rates in self._groups():
            end = max(0, len(rates) - since)  # a scaler leaves out steps that count
            made_by = list(islice(rates, max(0, end - every), end))
            if not any(made_by):
                continue  # nothing of this group has moved
            first, second = map(float, group["betas"])
            steps = self._made(optimizer)
            share = known_of_last(first, every) * first**since * (1 - first**steps)
            share *= len(made_by) / sum(made_by)
            for p in group["params"]:
                name, state = self._names.get(p, ""), optimizer.state.get(p)
                if name in moved and state:  # it is of these, and had a gradient
                    root = (state["exp_avg_sq"] / (1 - second**steps)).sqrt_().add_(group["eps"])
                    off = means[name].to(moved[name]) - moved[name]
                    state["exp_avg"].addcmul_(root, off, value=share)

    def _groups(self) -> Iterator[tuple[torch.optim.Optimizer, Group, deque[float]]]:
        """But those that an optimiser was given later, which `outer` refuses by name."""
        for optimizer, rates in self._rates.items():
            for group, own in zip(optimizer.param_groups, rates, strict=False):
                yield optimizer, group, own

    @torch.no_grad()
    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Put into v what the step will lack, or have too much: it adds (1 - β₂)·g².

        The first step of a parameter knows no m, and is Adam's own.
        """
        if is_inner_step(optimizer):
            return
        if kwargs.get("closure", args[1] if len(args) > 1 else None) is not None:
            raise RecipeError(
                "moments='mean' looks at the gradients before a step, and a closure makes them in "
                "it: call backward() first, and step() without one"
            )
        if getattr(optimizer, "found_inf", None) is not None:
            raise RecipeError(
                "moments='mean' takes gradients as they are, and a fused optimiser divides them by "
                "the GradScaler's factor in its step: make it with fused=False"
            )
        for group in optimizer.param_groups:
            _refuse_group(group)
            known = [p for p in group["params"] if p.grad is not None and optimizer.state.get(p)]
            if not known:
                continue
            first, second = map(float, group["betas"])
            grads, states = [p.grad for p in known], [optimizer.state[p] for p in known]
            m, v = ([state[key] for state in states] for key in ("exp_avg", "exp_avg_sq"))
            less = (1 - second) / second * (1 - 1 / self._ranks)
            foreach.addcmul_(v, m, m, value=less / (1 - first ** self._made(optimizer)) ** 2)
            foreach.addcmul_(v, grads, grads, value=-less)

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if is_inner_step(optimizer):
            return
        if optimizer in self._steps:
            self._steps[optimizer] += 1
        for one, group, rates in self._groups():
            if one is optimizer:
                rates.append(float(group["lr"]))

    def _made(self, optimizer: torch.optim.Optimizer) -> int:
        """So many steps. The optimiser is asked once, since its count may be on a device."""
        if optimizer not in self._steps:
            counts = (int(state["step"]) for state in optimizer.state.values() if state)
            self._steps[optimizer] = max(counts, default=0)
        return self._steps[optimizer]


def known_of_last(first: float, every: int) -> float:
    """κ: what a rank's last m deviates by, beside the deviation in the sum of its m in a round.

    A gradient k steps before the last is in m with β₁^k, and in the sum with 1 + β₁ + … + β₁^k.
    """
    last = [first**k for k in range(every)]
    summed = [sum(last[: k + 1]) for k in range(every)]
    return sum(map(float.__mul__, last, summed)) / sum(one * one for one in summed)


def _refuse_others(optimizer: torch.optim.Optimizer) -> None:
    """What is here follows from how Adam makes its moments of gradients."""
    kind = type(optimizer).__name__
    if not isinstance(optimizer, torch.optim.Adam):
        raise RecipeError(f"moments='mean' is for Adam and AdamW, not for {kind}")
    for group in optimizer.param_groups:
        _refuse_group(group)
        short = [p.dtype for p in group["params"] if p.dtype != accumulator(p.dtype)]
        if short:
            raise RecipeError(
                f"moments='mean' takes parameters in float32, and the optimiser has some in "
                f"{short[0]}, in which v would be rounded below 0: train in float32 with autocast"
            )


def _refuse_group(group: Group) -> None:
    """Where v is not made of the gradients alone."""
    if group["amsgrad"] or group["maximize"] or not group["betas"][1]:
        raise RecipeError(
            "moments='mean' takes Adam with amsgrad=False, maximize=False and betas[1] above 0"
        )
    if group["weight_decay"] and not group["decoupled_weight_decay"]:
        raise RecipeError(
            f"moments='mean' takes gradients as they are, and Adam adds weight_decay="
            f"{group['weight_decay']} times the weights to them: use AdamW"
        )
