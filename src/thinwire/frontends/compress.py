"""`compress`: one call for every wrapper that PyTorch has for data-parallel models."""

import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thinwire import cookbook
from thinwire.engine.finite import NonFinite
from thinwire.engine.synchronizer import Synchronizer
from thinwire.errors import RecipeError
from thinwire.frontends.ddp import DDPHandle, named, without_hook
from thinwire.frontends.handle import Handle, checked, default_policy, trained
from thinwire.frontends.torch_private import composed_by
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
    truth: int = 0,
    audit: int = 0,
    undo: bool = True,
    replay: bool = True,
    replicas: dist.ProcessGroup | None = None,
) -> Handle:
    """Exchange the gradients of a model by a recipe, from the next backward pass on.

    Call it on every rank, after wrapping the model by `DistributedDataParallel` or `fully_shard`
    and before training. A model takes one hook for life.

    Of a model that `fully_shard` has sharded, gradients are reduced over the shards by FSDP as
    ever, and over the replicas by the recipe: those of a 2-D mesh, or, on a 1-D mesh, `replicas`,
    the ranks that hold the same shard.

    With a `GradScaler` pass it as `grad_scaler`: what waits in the residuals follows changes of
    the loss scale, and an overflow step leaves all state as it was (`nonfinite="propagate"`,
    which is then the default; otherwise NaN and Inf raise). `node_size`, `timeout`,
    `truth`, `audit`, `undo` and `replay` are as in `Synchronizer`.
    """
    inner, pipeline = unwrapped(model), cookbook.recipe(recipe)
    nonfinite = nonfinite or default_policy(grad_scaler)
    if is_sharded(inner):
        from thinwire.frontends.fsdp import compress_sharded  # takes a second to import

        if node_size != 1:
            raise RecipeError(f"node_size={node_size}: of a sharded model replicas have no nodes")
        checked(pipeline, trained(inner), grad_scaler)
        common: dict[str, Any] = {"nonfinite": nonfinite, "timeout": timeout}
        common |= {"truth": truth, "audit": audit, "undo": undo, "replay": replay}
        return compress_sharded(inner, pipeline, replicas, seed, grad_scaler, common)
    if replicas is not None:
        raise RecipeError("replicas= is for models that fully_shard has sharded")
    ddp = without_hook(ddp_of(model, "compress"))
    sync = Synchronizer(
        checked(pipeline, named(ddp), grad_scaler),
        ddp.process_group,
        seed,
        nonfinite=nonfinite,
        node_size=node_size,
        timeout=timeout,
        truth=truth,
        audit=audit,
        undo=undo,
        replay=replay,
    )
    return DDPHandle(ddp, sync, grad_scaler)


def ddp_of(model: torch.nn.Module, caller: str) -> DistributedDataParallel:
    """The DDP model that was meant."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"{caller}() takes a DistributedDataParallel model first, not {type(model).__name__}"
        )
    ddp = unwrapped(model)
    if isinstance(ddp, DistributedDataParallel):
        return ddp
    taken = f"{caller}() takes a DistributedDataParallel model, not"
    if _is_a(ddp, "FullyShardedDataParallel"):
        raise TypeError(
            f"{taken} FullyShardedDataParallel: shard it by fully_shard() instead, which "
            "compress() takes too"
        )
    if "replicate" in composed_by(ddp):
        raise TypeError(
            f"{taken} what replicate() made: wrap it in DistributedDataParallel instead"
        )
    raise TypeError(
        f"{taken} {type(model).__name__}: wrap it first, or use thinwire.wrap(optimizer, model, "
        "recipe) without DDP"
    )


def is_sharded(model: torch.nn.Module) -> bool:
    """Whether `fully_shard` was called on it, or on modules in it."""
    return (
        isinstance(model, torch.nn.Module)
        and "replicate" not in composed_by(model)
        and any(_is_a(module, "FSDPModule") for module in model.modules())
    )


def _is_a(module: torch.nn.Module, name: str) -> bool:
    """Of FSDP's classes: whoever has one has imported it."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, getattr(fsdp, name))


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """What torch.compile and Lightning Fabric have wrapped once more."""
    for around in ("_orig_mod", "_forward_module"):
        inner = getattr(model, around, None)
        if isinstance(inner, torch.nn.Module):
            return unwrapped(inner)
    return model
