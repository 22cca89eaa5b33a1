"""Ray Train: one line after `prepare_model`, and one where a checkpoint is written.

    model = ray.train.torch.prepare_model(model)
    compression = thinwire.frontends.ray.compress(model, "topk(0.01)")
    ...
    compression.save(folder)
    ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))

Ray puts the folders that all ranks report into one, so each rank adds its file to its own.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray.train
import torch
from ray.train import Checkpoint

from thinwire.frontends import rank_files
from thinwire.frontends.compress import compress as compress_model
from thinwire.frontends.handle import Handle
from thinwire.pipeline import Pipeline


class Compression:
    """The handle of a model; none where there is one worker, whose model Ray does not wrap."""

    def __init__(self, handles: list[Handle]) -> None:
        self.handles = handles

    def save(self, folder: str | Path) -> None:
        """This rank's file, into the folder that it reports; every rank must call."""
        rank_files.save(folder, self.handles)

    def load(self, checkpoint: Checkpoint) -> None:
        """Go on from the files of a checkpoint, at any number of ranks."""
        with checkpoint.as_directory() as folder:
            rank_files.load(folder, self.handles)

    def close(self) -> None:
        """End the exchange."""
        for handle in self.handles:
            handle.close()


def compress(
    model: torch.nn.Module, recipe: Pipeline | str | Mapping[str, Any], **settings: Any
) -> Compression:
    """Exchange the gradients of a model by a recipe, after `ray.train.torch.prepare_model`.

    Where Ray resumes, from a checkpoint with the ranks' files, what waits goes on from there.
    `settings` are those of `thinwire.compress`.
    """
    if ray.train.get_context().get_world_size() == 1:
        return Compression([])
    compression = Compression([compress_model(model, recipe, **settings)])
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        compression.load(checkpoint)
    return compression
