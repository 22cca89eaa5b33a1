"""The DDP front end: one call registers a hook, and the backward pass exchanges as it goes."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

import torch
from torch.nn.parallel import DistributedDataParallel

from thinwire import cookbook
from thinwire.engine.finite import NonFinite
from thinwire.engine.synchronizer import Synchronizer
from thinwire.errors import RecipeError
from thinwire.frontends.handle import Handle, named
from thinwire.pipeline import Pipeline


def compress(
    model: torch.nn.Module,
    recipe: Pipeline | str | Mapping[str, Any],
    *,
    seed: int = 0,
    nonfinite: NonFinite | None = None,
    grad_scaler: "torch.amp.GradScaler | None" = None,
    node_size: int | Literal["auto"] = 1,
    timeout: timedelta | None = None,
) -> Handle:
    """Exchange the gradients of a DDP model by a recipe, from the next backward pass on.

    Call it on every rank, after wrapping the model and before training. DDP takes one hook
    for life.

    With a `GradScaler` pass it as `grad_scaler`: what waits in the residuals follows changes of
    the loss scale, and an overflow step leaves all state as it was (`nonfinite="propagate"`,
    which is then the default; otherwise NaN and Inf raise). `node_size` and `timeout` are as in
    `Synchronizer`.
    """
    ddp = ddp_of(model, "compress")
    if nonfinite is None:
        nonfinite = "raise" if grad_scaler is None else "propagate"
    pipeline = cookbook.recipe(recipe)
    for name in named(ddp):
        feedback = pipeline.of_tensor(name).feedback  # refuses what no pattern matches
        if grad_scaler is not None and feedback.is_step:
            raise RecipeError(
                f"{feedback!r} makes steps of gradients, which a GradScaler would divide by the "
                "loss scale: train in bfloat16 without one"
            )
    sync = Synchronizer(
        pipeline,
        ddp.process_group,
        seed,
        nonfinite=nonfinite,
        node_size=node_size,
        timeout=timeout,
    )
    handle = Handle(ddp, sync, grad_scaler)
    ddp.register_comm_hook(None, handle._hook)
    return handle


def ddp_of(model: torch.nn.Module, caller: str) -> DistributedDataParallel:
    """The DDP model that was meant."""
    ddp = getattr(model, "_orig_mod", model)  # torch.compile(DDP(...)) wraps once more
    if not isinstance(ddp, DistributedDataParallel):
        raise TypeError(
            f"{caller}() takes a DistributedDataParallel model, not {type(model).__name__}; "
            "wrap it first, or use thinwire.Synchronizer without DDP"
        )
    return ddp
