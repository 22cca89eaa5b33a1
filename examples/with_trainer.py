"""GPT-2 with the Trainer of Hugging Face transformers, from its config.

torchrun --nproc-per-node 2 examples/with_trainer.py
"""

import tempfile

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import thinwire.frontends.transformers


class Repeats(Dataset[dict[str, Tensor]]):
    """Sentences of one word, again and again."""

    def __len__(self) -> int:
        return 320

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        ids = torch.full((16,), index * 37 % 100)
        return {"input_ids": ids, "labels": ids}


def main() -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_embd=64, n_layer=2, n_head=2))
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            max_steps=20,
            learning_rate=3e-3,
            logging_steps=10,
            save_strategy="no",
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(model, args, train_dataset=Repeats())
        thinwire.frontends.transformers.compress(trainer, "topk(0.01)")  # the one line
        done = trainer.train()
    if trainer.is_world_process_zero():
        print(f"step {done.global_step}  loss {done.training_loss:.3f}")


if __name__ == "__main__":
    main()
