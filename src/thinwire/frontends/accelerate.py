"""Hugging Face Accelerate: one line before `prepare`.

    accelerator = Accelerator()
    thinwire.frontends.accelerate.compress(accelerator, "topk(0.01)")

Its `comm_hook` is a choice of PyTorch's own hooks, so this takes the place of the whole
`ddp_handler`. `save_state` and `load_state` have one file a rank more.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from thinwire import cookbook
from thinwire.errors import RecipeError
from thinwire.frontends import rank_files
from thinwire.frontends.compress import compress as compress_model
from thinwire.frontends.handle import Handle
from thinwire.pipeline import Pipeline


class Compression:
    """Registers the hook of every model that is prepared from now on, and knows their handles."""

    def __init__(self, accelerator: Accelerator, recipe: Pipeline, settings: Mapping[str, Any]):
        self.handles: list[Handle] = []
        self._accelerator, self._recipe, self._settings = accelerator, recipe, settings
        self.take_place()
        accelerator.register_save_state_pre_hook(lambda models, weights, folder: self.save(folder))
        accelerator.register_load_state_pre_hook(lambda models, folder: self.load(folder))

    def take_place(self) -> None:
        """Of the handler that there is, which goes on saying what DDP is made with."""
        if self._accelerator.ddp_handler is not self:
            self._given = self._accelerator.ddp_handler
            self._accelerator.ddp_handler = self

    def to_kwargs(self) -> dict[str, Any]:
        """What DDP is made with: called by Accelerate."""
        return self._given.to_kwargs() if self._given is not None else {}

    def register_comm_hook(self, model: torch.nn.Module) -> None:
        """Called by Accelerate as soon as it has wrapped a model."""
        settings = {"grad_scaler": self._accelerator.scaler} | dict(self._settings)
        self.handles.append(compress_model(model, self._recipe, **settings))

    def save(self, folder: str | Path) -> None:
        """One file a rank."""
        rank_files.save(folder, self.handles)

    def load(self, folder: str | Path) -> None:
        """Go on from these files, at any number of ranks."""
        rank_files.load(folder, self.handles)

    def close(self) -> None:
        """End all exchanges."""
        for handle in self.handles:
            handle.close()


def compress(
    accelerator: Accelerator, recipe: Pipeline | str | Mapping[str, Any], **settings: Any
) -> Compression:
    """Exchange the gradients of every model that is prepared after this, by a recipe.

    `settings` are those of `thinwire.compress`.
    """
    if accelerator._models:
        raise RecipeError("compress() comes before accelerator.prepare(), which wraps the model")
    return Compression(accelerator, cookbook.recipe(recipe), settings)
