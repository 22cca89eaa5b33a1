"""What a front end gives back: statistics, checkpoints, the end."""

import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from thinwire.engine.finite import NonFinite
from thinwire.engine.saved import Saved
from thinwire.engine.synchronizer import Synchronizer
from thinwire.errors import RecipeError
from thinwire.feedback import Momentum
from thinwire.frontends.momentum import warn_of_momentum
from thinwire.frontends.watch import Watch, Writer, trace, writer_of
from thinwire.pipeline import Pipeline


class Handle:
    """What `compress` and `wrap` give back: statistics, checkpoints, the end."""

    def __init__(
        self,
        synchronizer: Synchronizer,
        parameters: Mapping[str, Tensor],
        grad_scaler: "torch.amp.GradScaler | None" = None,
        wrapped: str = "",
    ) -> None:
        """`wrapped`: what of the wrapper must be the same on all ranks, in words."""
        self.synchronizer = synchronizer
        forms = [f"{n}: {tuple(p.shape)} {p.dtype}" for n, p in parameters.items()]
        synchronizer.comm.agree("the model", "; ".join([*forms, wrapped]))
        synchronizer.roster.expect(parameters)
        self._scaler = grad_scaler
        recipe = synchronizer.pipeline
        corrected = [p for n, p in parameters.items() if _has_momentum(recipe.of_tensor(n))]
        if corrected:
            warn_of_momentum(corrected)

    def stats(self) -> dict[str, Any]:
        """Bytes, counts and seconds by phase; see `Synchronizer.stats`."""
        return self.synchronizer.stats()

    def explain(self) -> str:
        """Which way each bucket goes and why; see `Synchronizer.explain`."""
        return self.synchronizer.explain()

    def watch(
        self,
        every: int = 20,
        *,
        tensorboard: Writer | str | Path | None = None,
        show: bool | None = None,
    ) -> Watch:
        """Show every so many steps what they took: a live table in the terminal, and scalars.

        `tensorboard` is a folder, or a writer such as a `SummaryWriter`; `show=None` shows the
        table on the first rank, where there is a terminal. Warns once when compression does not
        pay, and when updates are far from the mean (which `compress(truth=N)` measures). On a GPU
        each look waits for the device.
        """
        if show is None:
            show = self.synchronizer.comm.rank == 0 and sys.stdout.isatty()
        return Watch(self.synchronizer, every, writer_of(tensorboard), show)

    def trace(self, path: str | Path) -> AbstractContextManager[None]:
        """Write what a step does, on all threads and streams, for chrome://tracing or Perfetto.

        with handle.trace("step.json"):
            loss(model, batch).backward()
        """
        return trace(path)

    @property
    def place(self) -> str:
        """Whose state this rank's is, in a word, for names of files and entries."""
        return f"rank{self.synchronizer.comm.rank}"

    def state_dict(self, gather: bool = False) -> dict[str, Any]:
        """What this rank must remember, to be saved beside the model: it differs by rank.

        `gather`: what all ranks must, on every rank, for those who save on one; all must call.
        """
        return self.synchronizer.state_dict(gather)

    def load_state_dict(
        self, state: Saved, *, recipe_changed: bool = False, lost: Collection[int] = ()
    ) -> None:
        """Go on from a saved state, on all ranks; see `Synchronizer.load_state_dict`.

        With a GradScaler or without one, whichever it was when the state was saved.
        """
        sync = self.synchronizer
        sync.load_state_dict(state, recipe_changed=recipe_changed, lost=lost)
        if self._scaler is not None:
            sync.scale = sync.scale or 1.0  # what was saved without one is of the loss itself
        elif sync.scale:
            sync.follow_scale(1.0)

    def close(self) -> None:
        """End the worker and its process groups. The model keeps its hooks: train no further."""
        self.synchronizer.close()

    def _follow_scale(self) -> None:
        if self._scaler is None:
            return
        self.synchronizer.follow_scale(self._scaler.get_scale())


def _has_momentum(recipe: Pipeline) -> bool:
    return any(isinstance(own.feedback, Momentum) for own in recipe.alternatives)


def check_order(model: object, call: str) -> None:
    """Refuse a model and an optimiser in each other's places."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{call}: here {type(model).__name__} is in the model's place")


def with_hooks(optimizer: object, call: str) -> torch.optim.Optimizer:
    """The user's own optimiser: what Accelerate makes of it is one too, and has no hooks."""
    inner = getattr(optimizer, "optimizer", optimizer)
    if not isinstance(inner, torch.optim.Optimizer):
        raise TypeError(f"{call}: here {type(optimizer).__name__} is in the optimiser's place")
    return inner


def trained(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters that get gradients, by the names the user gave them."""
    return {plain(n): p for n, p in module.named_parameters() if p.requires_grad}


def default_policy(grad_scaler: "torch.amp.GradScaler | None") -> NonFinite:
    """What NaN and Inf do, where nothing else is said: a scaler looks for them itself."""
    return "raise" if grad_scaler is None else "propagate"


def checked(
    pipeline: Pipeline,
    names: Iterable[str],
    grad_scaler: "torch.amp.GradScaler | None",
) -> Pipeline:
    """A recipe that has an answer for every parameter, and none that a scaler would spoil."""
    if not hasattr(grad_scaler, "get_scale") and grad_scaler is not None:
        raise TypeError(f"{grad_scaler=} must be the GradScaler itself")
    for name in names:
        feedback = pipeline.of_tensor(name).feedback  # refuses what no pattern matches
        if grad_scaler is not None and feedback.is_step:
            raise RecipeError(
                f"{feedback!r} makes steps of gradients, which a GradScaler would divide by the "
                "loss scale: train in bfloat16 without one"
            )
    return pipeline


def plain(name: str) -> str:
    """torch.compile puts a module of its own in between."""
    return name.replace("_orig_mod.", "")
