"""Any loop: gradients are averaged before `optimizer.step()`, without DDP."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, Literal
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thinwire import cookbook
from thinwire.engine.finite import NonFinite
from thinwire.engine.synchronizer import Synchronizer
from thinwire.errors import RecipeError
from thinwire.frontends.beginning import begin_alike
from thinwire.frontends.compress import unwrapped
from thinwire.frontends.handle import (
    Handle,
    check_order,
    checked,
    default_policy,
    trained,
)
from thinwire.frontends.newcomers import Newcomers, refuse_strangers
from thinwire.frontends.stepping import hooked
from thinwire.frontends.torch_private import is_inner_step
from thinwire.pipeline import Pipeline


def wrap(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    recipe: Pipeline | str | Mapping[str, Any],
    *,
    group: dist.ProcessGroup | None = None,
    seed: int = 0,
    nonfinite: NonFinite | None = None,
    grad_scaler: "torch.amp.GradScaler | None" = None,
    node_size: int | Literal["auto"] = 1,
    timeout: timedelta | None = None,
    truth: int = 0,
    audit: int = 0,
    undo: bool = True,
    replay: bool = True,
) -> "WrapHandle":
    """Let every `optimizer.step()` average the model's gradients first, by a recipe.

        handle = thinwire.wrap(optimizer, model, "topk(0.01)")

    For a loop without DDP; the model is not wrapped, and starts everywhere as on rank 0. All that
    was accumulated since the last step is sent at once, after the backward pass and not beside it.
    Parameters without a gradient are left out, and must be so on every rank. Of several optimisers
    of one model wrap the one that steps first, and it alone.

    Call `handle.average()` before what needs the mean already, as clipping does; `step()` then
    does not average again. With a `GradScaler`, passed as `grad_scaler`, call it in every step and
    before `unscale_`: a scaler leaves out `step()` by what it finds on its own rank. Other
    settings are those of `compress`.
    """
    call = "wrap(optimizer, model, recipe)"
    check_order(model, call)
    optimizer = hooked(optimizer, call)
    _refuse_twice(model)
    refuse_strangers(model, [optimizer])
    pipeline = checked(cookbook.recipe(recipe), trained(model), grad_scaler)
    sync = Synchronizer(
        pipeline,
        group,
        seed,
        nonfinite=nonfinite or default_policy(grad_scaler),
        node_size=node_size,
        timeout=timeout,
        truth=truth,
        audit=audit,
        undo=undo,
        replay=replay,
    )
    return WrapHandle(optimizer, model, sync, grad_scaler)


def _refuse_twice(model: torch.nn.Module) -> None:
    """What was averaged before would be averaged once more, silently."""
    if isinstance(unwrapped(model), DistributedDataParallel):
        raise RecipeError(
            "DistributedDataParallel averages this model's gradients already, and wrap() would "
            "once more: use thinwire.compress(model, recipe), or wrap() with the module inside"
        )
    averaged = {p for handle in _open for p in handle.parameters}
    for name, parameter in trained(model).items():
        if parameter in averaged:
            raise RecipeError(
                f"{name!r} was wrapped before, and this would average twice: wrap() the optimiser "
                "that steps first, and it alone, which averages all of the model; or close() the "
                "first handle"
            )


class WrapHandle(Handle):
    """What `wrap` gives back."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: torch.nn.Module,
        synchronizer: Synchronizer,
        grad_scaler: "torch.amp.GradScaler | None" = None,
    ) -> None:
        # As DDP has them, for which they come in the order of the backward pass.
        self._parameters = dict(reversed(trained(model).items()))
        known = self._parameters.values()
        self._newcomers = Newcomers(model, [optimizer], known, "wrap")
        super().__init__(synchronizer, self._parameters, grad_scaler)
        self._averaged = False
        begin_alike(model, synchronizer.comm, "the model")
        self._before = optimizer.register_step_pre_hook(self._before_step)
        self._after = optimizer.register_step_post_hook(self._after_step)
        _open.add(self)

    @property
    def parameters(self) -> Collection[torch.nn.Parameter]:
        """Those that are averaged."""
        return self._parameters.values()

    def average(self) -> None:
        """Average the gradients now; the next `step()` takes them as they are then."""
        self._newcomers.refuse()
        self._follow_scale()
        grads = {n: p.grad for n, p in self._parameters.items() if p.grad is not None}
        averaged = self.synchronizer.average_all(grads)
        for name, grad in averaged.items():
            self._parameters[name].grad = grad
        self._averaged = True

    def close(self) -> None:
        """Take the hooks off the optimiser, and end the worker and its process groups."""
        _open.discard(self)
        self._before.remove()
        self._after.remove()
        super().close()

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if is_inner_step(optimizer):
            return
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is not None:
            raise RecipeError(
                "step(closure) computes gradients after they would be averaged: call backward() "
                "first and step() without a closure, or use DistributedDataParallel and compress()"
            )
        if self._averaged:
            return
        if self._scaler is not None:
            raise RecipeError("with a GradScaler call handle.average() before unscale_ and step")
        self.average()

    def _after_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if not is_inner_step(optimizer):
            self._averaged = False


_open = WeakSet[WrapHandle]()
