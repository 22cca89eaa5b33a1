"""The Trainer of Hugging Face transformers: one line before `train`.

    trainer = Trainer(model, args, train_dataset=...)
    thinwire.frontends.transformers.compress(trainer, "topk(0.01)")

Every checkpoint has one file a rank more, from which `train(resume_from_checkpoint=...)` goes on.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from thinwire.frontends import accelerate
from thinwire.pipeline import Pipeline


class SaveRankFiles(TrainerCallback):
    """Writes what this rank must remember, whenever the Trainer has saved a checkpoint."""

    def __init__(self, compression: accelerate.Compression) -> None:
        self._compression = compression

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any
    ) -> None:
        """Called on every rank."""
        folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        self._compression.save(folder)


def compress(
    trainer: Trainer, recipe: Pipeline | str | Mapping[str, Any], **settings: Any
) -> accelerate.Compression:
    """Exchange the Trainer's gradients by a recipe; `settings` are those of `thinwire.compress`."""
    compression = accelerate.compress(trainer.accelerator, recipe, **settings)
    trainer.add_callback(SaveRankFiles(compression))
    load_optimizer = trainer._load_optimizer_and_scheduler  # no callback is told of the checkpoint
    wrap = trainer._wrap_model  # makes a handler of its own, before version 5

    def load(checkpoint: str | None) -> None:
        load_optimizer(checkpoint)
        if checkpoint is not None:
            compression.load(checkpoint)

    def keep_place(*args: Any, **options: Any) -> Any:
        model = wrap(*args, **options)
        compression.take_place()
        return model

    trainer._load_optimizer_and_scheduler, trainer._wrap_model = load, keep_place
    return compression
