"""One call around an optimiser: `outer`."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thinwire.engine.finite import NonFinite
from thinwire.engine.synchronizer import Synchronizer
from thinwire.errors import RecipeError
from thinwire.frontends.beginning import begin_alike
from thinwire.frontends.compress import unwrapped as inside
from thinwire.frontends.handle import check_order
from thinwire.frontends.local.fragments import fragments_of, trained_by, unwrapped
from thinwire.frontends.local.handle import Outer
from thinwire.frontends.local.moments import MeanMoments
from thinwire.frontends.local.setups import Every, Moments, OuterFactory, Setup, setup
from thinwire.frontends.local.shared import Keep
from thinwire.frontends.newcomers import Newcomers
from thinwire.frontends.stepping import hooked
from thinwire.pipeline import Pipeline

CALL = "outer(model, optimizer, recipe)"


@torch.inference_mode(False)  # what is made in it could not be stepped later
def outer(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    recipe: Pipeline | str | Mapping[str, Any],
    *,
    every: Every | None = None,
    outer: OuterFactory | None = None,
    fragments: int | None = None,
    delay: int | None = None,
    blend: float | None = None,
    hold: float | None = None,
    own: float | None = None,
    moments: Moments | None = None,
    group: dist.ProcessGroup | None = None,
    node_size: int | Literal["auto"] = 1,
    seed: int = 0,
    nonfinite: NonFinite = "raise",
    keep_dtype: torch.dtype | None = None,
    keep_on: torch.device | str | None = None,
    timeout: timedelta | None = None,
    grad_scaler: "torch.amp.GradScaler | None" = None,
) -> Outer:
    """Let every rank make local steps, and exchange how far they went every so many of them.

        optimizer = torch.optim.AdamW(model.parameters(), lr)
        handle = thinwire.outer(model, optimizer, "sparseloco", every=30)

    The training loop stays as it is. After `every` steps of the optimiser (30; or a function from
    the number of the round) the pseudo-gradient, the parameters when the ranks last met less those
    of now, is averaged by the recipe; an optimiser that `outer` makes takes it for the gradient of
    a copy of the model that all ranks share, and the parameters become that copy's. It is made of a
    list of parameters, as by `functools.partial(torch.optim.SGD, lr=0.7, momentum=0.9)`; by default
    Nesterov's as in DiLoCo, and plain SGD where the recipe selects, as in SparseLoCo. The names
    `diloco`, `streaming-diloco`, `sparseloco`, `localsgd` and `demo` stand for a recipe with all
    settings of its paper, `shortloco` for settings of ours.

    `fragments`, `delay`, `blend`, `hold`, `own` and `moments` are those of `Setup`: with a delay
    the exchange goes on in the background of that many steps. `keep_dtype=torch.bfloat16` shortens
    residuals and the outer optimiser's moments between the rounds, `keep_on="cpu"` keeps them and
    the copy in host memory.

    The model is not wrapped, or in DDP inside of each node: then `group` has the ranks between
    nodes that this one exchanges with, or `node_size` ranks of one group share a node, and one of
    them speaks for it. All ranks begin with the parameters and buffers of the first. Several
    optimisers are given in the order of their steps, of which the last is counted. A `GradScaler`
    leaves out steps of one rank alone: as `grad_scaler` it lets them count.
    """
    check_order(model, CALL)
    given = optimizer if isinstance(optimizer, Sequence) else [optimizer]
    optimizers = [hooked(one, CALL, whole=True) for one in given]
    chosen = setup(
        recipe,
        every=every,
        outer=outer,
        fragments=fragments,
        delay=delay,
        blend=blend,
        hold=hold,
        own=_own_way(own, node_size),
        moments=moments,
    )
    parameters = trained_by(model, optimizers)
    parts = fragments_of(parameters, chosen.fragments)
    for name in parameters:
        chosen.recipe.of_tensor(name)  # refuses what no pattern matches
    if nonfinite == "propagate":
        raise RecipeError("nonfinite='propagate' would put NaN into the model: 'raise' or 'skip'")
    keep = Keep(keep_dtype, None if keep_on is None else torch.device(keep_on))
    sync = Synchronizer(
        chosen.recipe, group, seed, nonfinite=nonfinite, node_size=node_size, timeout=timeout
    )
    what = "the model or the local steps"
    begin_alike(unwrapped(model), sync.comm, what, _as_text(chosen))
    told = parameters.values()
    newcomers = Newcomers(model, optimizers, told, "outer", end="synchronize() and close()")
    mean = chosen.moments == "mean"
    brought = MeanMoments(optimizers, parameters, _apart(model, sync)) if mean else None
    handle = (parameters, optimizers, chosen, parts, sync, keep, newcomers)
    return Outer(*handle, grad_scaler=grad_scaler, moments=brought)


def _apart(model: torch.nn.Module, sync: Synchronizer) -> int:
    """How many gradients there are: DDP inside of a node makes one of all that are there."""
    in_nodes = isinstance(inside(model), DistributedDataParallel)
    return sync.comm.size // (sync.node_size if in_nodes else 1)


def _own_way(own: float | None, node_size: int | str) -> float | None:
    """What waits is known to one rank of a node alone, and all of them must go on alike."""
    if node_size == 1:
        return own
    if own:
        raise RecipeError(f"own={own} is for ranks that each speak for themselves: {node_size=}")
    return 0.0


def _as_text(chosen: Setup) -> str:
    """What of the local steps must be the same on all ranks."""
    every = "by the round" if callable(chosen.every) else chosen.every
    return (
        f"{every=}, fragments={chosen.fragments}, delay={chosen.delay}, blend={chosen.blend}, "
        f"hold={chosen.hold}, own={chosen.own}, moments={chosen.moments}; "
    )
