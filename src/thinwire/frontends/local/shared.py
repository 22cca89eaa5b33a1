"""The model as all ranks have it since they last met, and what moves it."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from thinwire.errors import RecipeError
from thinwire.frontends.local.setups import OuterFactory
from thinwire.types import accumulator
from thinwire.units.unit import Unit


@dataclass(frozen=True, slots=True)
class Keep:
    """How what is needed once a round is kept between the rounds; None: as it is used."""

    dtype: torch.dtype | None = None
    device: torch.device | None = None

    def __post_init__(self) -> None:
        short = self.dtype
        if short is not None and not (isinstance(short, torch.dtype) and short.is_floating_point):
            raise RecipeError(f"keep_dtype={short!r} must be a floating-point dtype")

    @contextmanager
    def waiting(self, units: Callable[[], list[Unit]]) -> Iterator[None]:
        """Bring what waits in these units to where it is used, and away again.

        A first exchange makes units: they are asked for before it and after it.
        """
        for unit in units():
            spec, state = unit.spec, unit.state["feedback"]
            for key, value in state.items():
                state[key] = value.to(spec.device, spec.accumulator)
        try:
            yield
        finally:
            for unit in units():
                for key, value in unit.state["feedback"].items():
                    unit.state["feedback"][key] = value.to(self.device, self.dtype)


class SharedCopy:
    """A parameter beside each of the model's, which the outer optimiser steps.

    In float32 where the model's are shorter. It may lie in host memory: then it is stepped there.

    `waiting` has what was not sent yet of a tensor, or None. `own` is how much of it is in the
    model's weights, by name: `apply` brings it there.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        factory: OuterFactory,
        keep: Keep,
        waiting: Callable[[str], Tensor | None],
    ) -> None:
        self._local, self._keep, self._waiting = parameters, keep, waiting
        self.own = dict.fromkeys(parameters, 0.0)
        self.parameters = {
            name: nn.Parameter(
                p.detach().to(keep.device or p.device, accumulator(p.dtype), copy=True)
            )
            for name, p in parameters.items()
        }
        self.optimizer = factory(list(self.parameters.values()))
        self._check_stepped()

    @property
    def stepped(self) -> list[str]:
        """The names in the order in which the outer optimiser has its parameters, and counts them.

        That is its own: it may have made groups of those that it was given.
        """
        names = {p: name for name, p in self.parameters.items()}
        return [names[p] for group in self.optimizer.param_groups for p in group["params"]]

    def _check_stepped(self) -> None:
        """Refuse an outer optimiser of others: the copy would stay where it is, without a word."""
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise RecipeError(f"outer= made a {type(self.optimizer).__name__}, not an optimiser")
        given = set(self.parameters.values())
        taken = {p for group in self.optimizer.param_groups for p in group["params"]}
        if taken != given:
            raise RecipeError(
                f"the outer optimiser has {len(taken - given)} parameters that it was not given, "
                f"and lacks {len(given - taken)} of the {len(given)} that it was: outer= makes it "
                "of the list that it is called with, a copy of the model's, and of all of it"
            )

    def moved(self, names: Collection[str]) -> dict[str, Tensor]:
        """Pseudo-gradients: where the ranks last met less where this one is, in new memory.

        Both as the model has them: what rounding to its dtype takes away is no step of anyone's.
        """
        return {
            name: self._as_local(name).to(self.parameters[name].dtype) - self._local[name].detach()
            for name in names
        }

    def step(self, means: Mapping[str, Tensor]) -> None:
        """Move the tensors that these are pseudo-gradients of; the others stay."""
        stepped = [self.parameters[name] for name in means]
        for p, mean in zip(stepped, means.values(), strict=True):
            p.grad = mean.to(p.device)
            self._cast(p, p.dtype)
        self.optimizer.step()
        for p in stepped:
            p.grad = None
            self._cast(p, self._keep.dtype)

    @torch.no_grad()
    def draw_back(self, names: Collection[str], hold: float) -> dict[str, Tensor]:
        """Bring the model nearer to the copy, with `hold` of the way left; where it then is."""
        for name in names:
            if hold != 1:
                self._local[name].lerp_(self._as_local(name), 1 - hold)
        return {name: self._local[name].detach().clone() for name in names}

    @torch.no_grad()
    def take_up(self, sent: Mapping[str, Tensor], hold: float) -> None:
        """Give a model back what was laid down, (1 - h)/h of what was held: no mean brings it."""
        for name, held in sent.items():
            self._local[name].add_(held - self._as_local(name), alpha=(1 - hold) / hold)

    @torch.no_grad()
    def apply(
        self,
        names: Collection[str],
        sent: Mapping[str, Tensor],
        blend: float | None,
        own: float = 0.0,
    ) -> None:
        """Bring the model to the copy; `sent` is where it was, if it may have made steps since."""
        for name in names:
            self.own[name] = own
            p, new = self._local[name], self._as_local(name)
            if blend is not None:
                p.lerp_(new, 1 - blend)
            elif name in sent:
                p.sub_(sent[name]).add_(new)  # exactly the copy where it made none
            else:
                p.copy_(new)

    def state(self) -> dict[str, Any]:
        """What the outer optimiser remembers: as torch has it, with texts for keys.

        A copy: torch's has the moments themselves, which the next step changes.
        """
        saved = deepcopy(self.optimizer.state_dict())
        return saved | {"state": {str(place): own for place, own in saved["state"].items()}}

    @torch.no_grad()
    def load(self, shared: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Where the ranks met, and what the outer optimiser remembered there."""
        for name, p in self.parameters.items():
            p.copy_(shared[name])
        self.load_optimizer(deepcopy(state))  # torch would go on in the memory of what is given

    def load_optimizer(self, state: Mapping[str, Any]) -> None:
        """As `state` wrote it down."""
        by_place = {int(place): own for place, own in state["state"].items()}
        self.optimizer.load_state_dict({**state, "state": by_place})

    def _as_local(self, name: str) -> Tensor:
        """Where this rank's round begins, as the model would have it."""
        local, copy = self._local[name], self.parameters[name].detach()
        waits = self._waiting(name) if self.own[name] else None
        if waits is not None:
            copy = copy - self.own[name] * waits.to(copy.device, copy.dtype).view_as(copy)
        return copy.to(local.device, local.dtype)

    def _cast(self, p: nn.Parameter, dtype: torch.dtype | None) -> None:
        """What the outer optimiser remembers of each element, to where it is used or kept.

        A single number takes no room, and may be a count of steps.
        """
        state = self.optimizer.state[p]
        for key, value in state.items():
            if isinstance(value, Tensor) and value.dim() and value.shape == p.shape:
                state[key] = value.to(dtype)
