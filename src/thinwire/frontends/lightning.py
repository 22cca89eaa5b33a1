"""Lightning: a strategy that is DDP's, with gradients that travel by a recipe.

    trainer = lightning.Trainer(strategy=ThinwireStrategy("topk(0.01)"))

Its own `ddp_comm_hook` is left out, without a word, where there is no CUDA, and nothing saves a
hook's state. Every checkpoint has one file a rank more, in a folder beside it. With Fabric use
`thinwire.compress` on what `fabric.setup` gives back, and `thinwire.frontends.rank_files`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.strategies import DDPStrategy

from thinwire import cookbook
from thinwire.frontends import rank_files
from thinwire.frontends.compress import compress
from thinwire.frontends.handle import Handle
from thinwire.pipeline import Pipeline


class ThinwireStrategy(DDPStrategy):
    """DDP with a recipe; `settings` are those of `thinwire.compress`, `options` DDPStrategy's."""

    def __init__(
        self,
        recipe: Pipeline | str | Mapping[str, Any],
        *,
        settings: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.handle: Handle | None = None
        self._recipe, self._compress_settings = cookbook.recipe(recipe), dict(settings or {})
        self._resumes_from: Path | None = None

    def _register_ddp_hooks(self) -> None:
        """Called by every `fit`, which wraps the model anew."""
        if self.handle is not None:
            self.handle.close()
        scaler = getattr(self.precision_plugin, "scaler", None)
        settings: dict[str, Any] = {"grad_scaler": scaler} | self._compress_settings
        self.handle = compress(self.model, self._recipe, **settings)

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any = None
    ) -> None:
        """Lightning's own file by rank 0, and one by each rank."""
        super().save_checkpoint(checkpoint, filepath, storage_options)
        rank_files.save(folder_beside(filepath), self._handles)

    def load_checkpoint(
        self, checkpoint_path: str | Path, *args: Any, **options: Any
    ) -> dict[str, Any]:
        """Comes before the model is wrapped; `load_optimizer_state_dict` after it."""
        self._resumes_from = folder_beside(checkpoint_path)
        loaded: dict[str, Any] = super().load_checkpoint(checkpoint_path, *args, **options)
        return loaded

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Called where training resumes; what waits is as old as the optimiser's moments."""
        super().load_optimizer_state_dict(checkpoint)
        if self._resumes_from is not None:
            rank_files.load(self._resumes_from, self._handles)

    def remove_checkpoint(self, filepath: str | Path) -> None:
        """Lightning's own file, and those of the ranks."""
        super().remove_checkpoint(filepath)
        if self.is_global_zero:
            rank_files.remove(folder_beside(filepath))

    @property
    def _handles(self) -> list[Handle]:
        return [] if self.handle is None else [self.handle]


def folder_beside(checkpoint: str | Path) -> Path:
    """Where the ranks' files of a checkpoint are."""
    return Path(f"{checkpoint}.thinwire")
