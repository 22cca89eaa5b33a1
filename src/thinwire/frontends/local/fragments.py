"""Which parameters take part, and which of them meet together."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from thinwire.engine.given import is_dtensor
from thinwire.errors import RecipeError
from thinwire.frontends.compress import unwrapped as inside
from thinwire.frontends.handle import plain
from thinwire.frontends.newcomers import refuse_strangers


def trained_by(
    model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> dict[str, nn.Parameter]:
    """The model's parameters by the names the user gave them, if these optimisers have them all."""
    refuse_strangers(model, optimizers)
    names = {p: plain(name) for name, p in unwrapped(model).named_parameters()}
    stepped = {p for one in optimizers for group in one.param_groups for p in group["params"]}
    left = [name for p, name in names.items() if p.requires_grad and p not in stepped]
    if left:
        raise RecipeError(
            f"{left[0]!r} is trained, and not by the optimiser ({len(left)} such): ranks would "
            "keep their own; give all optimisers as a list, or set requires_grad=False"
        )
    taken = {name: p for p, name in names.items() if p in stepped and p.requires_grad}
    for name, p in taken.items():
        if is_dtensor(p) or not p.is_floating_point():
            raise RecipeError(
                f"{name!r} is a {type(p).__name__} of {p.dtype}: outer() takes real parameters "
                "that are whole on every rank, as outside of FSDP"
            )
    return taken


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own module, inside of DDP and of what torch.compile and Fabric put around it."""
    ddp = inside(model)
    return ddp.module if isinstance(ddp, DistributedDataParallel) else ddp


def fragments_of(parameters: Mapping[str, Tensor], count: int) -> list[tuple[str, ...]]:
    """Names in fragments of about as many elements, each in the model's order.

    The largest first, each to the emptiest: every fragment then has tensors from all depths, as the
    strided ones of Streaming DiLoCo (section 2.2.1), which end better than consecutive ones.
    """
    if count > len(parameters):
        raise RecipeError(
            f"fragments={count} are more than the {len(parameters)} tensors of the model"
        )
    filled = [0] * count
    owner: dict[str, int] = {}
    for name in sorted(parameters, key=lambda name: -parameters[name].numel()):
        owner[name] = filled.index(min(filled))
        filled[owner[name]] += parameters[name].numel()
    return [tuple(n for n in parameters if owner[n] == number) for number in range(count)]
