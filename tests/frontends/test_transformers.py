"""The Trainer: one line before `train`; models train as by the DDP front end, bit for bit."""

import shutil
import tempfile

import pytest
import torch
import torch._dynamo  # the first optimiser would import it, while other ranks wait

import thinwire as tw
from support.doors import (
    MODELS,
    RECIPE,
    Sentences,
    identical,
    launched,
    shared_folder,
    tiny,
    weights,
)
from support.extras import needs

pytestmark = needs("accelerate", "transformers")
STEPS = 4


def arguments(folder, steps):
    from transformers import TrainingArguments

    return TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_grad_norm=0.5,
        learning_rate=0.01,
        lr_scheduler_type="constant",
        optim="adamw_torch",
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="steps",
        save_steps=2,
        seed=3,
    )


def trainer_in(folder, by=None, poison=False, steps=STEPS, kind="gpt2"):
    """What a user's script has; dropout draws from the state that checkpoints have too."""
    from accelerate.state import AcceleratorState
    from transformers import Trainer

    AcceleratorState._reset_state(reset_partial_state=True)
    model = tiny(kind)
    if poison:
        model.lm_head.weight.register_hook(lambda grad: grad * torch.nan)
    return (by or Trainer)(model=model, args=arguments(folder, steps), train_dataset=Sentences(64))


def by_hand():
    """A Trainer whose DDP model gets `thinwire.compress` in the first step."""
    from transformers import Trainer

    class ByHand(Trainer):
        handle = None

        def training_step(self, model, *args, **kwargs):
            self.handle = self.handle or tw.compress(model, RECIPE)
            return super().training_step(model, *args, **kwargs)

    return ByHand


# What the ranks do.


def trains(group, rank, size, kind):
    import thinwire.frontends.transformers as door

    with launched(rank, size), tempfile.TemporaryDirectory() as own:
        trainer = trainer_in(own, kind=kind)
        compression = door.compress(trainer, RECIPE)  # the one line
        trainer.train()
        assert trainer.args.world_size == size
        plain = trainer_in(own, by_hand(), kind=kind)
        plain.train()
        same = torch.equal(weights(trainer.model), weights(plain.model))
        steps = compression.handles[0].stats()["total"]["steps"]
        trainer.train()  # again, and on with the same hook
        further = compression.handles[-1].stats()["total"]["steps"]
        moved = not torch.equal(weights(trainer.model), weights(plain.model))
        together = identical(trainer.model)
        compression.close()
        plain.handle.close()
        return same, steps, further, moved and together


def resumes(group, rank, size):
    import thinwire.frontends.transformers as door

    with launched(rank, size):
        folder = shared_folder()
        whole = trainer_in(folder)
        one = door.compress(whole, RECIPE)
        whole.train()
        again = trainer_in(folder)
        two = door.compress(again, RECIPE)
        again.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
        files = sorted(file.name for file in (folder / "checkpoint-2").glob("thinwire*"))
        one.close()
        two.close()
        torch.distributed.barrier()
        if rank == 0:
            shutil.rmtree(folder)
        return torch.equal(weights(whole.model), weights(again.model)), files


def poisoned(group, rank, size):
    import thinwire.frontends.transformers as door

    with launched(rank, size), tempfile.TemporaryDirectory() as own:
        trainer = trainer_in(own, poison=rank == 1)
        compression = door.compress(trainer, RECIPE)
        with pytest.raises(tw.NonFiniteError, match="rank 1"):
            trainer.train()
        compression.close()


def goes_on(group, rank, size, folder, steps, checkpoint):
    """Train up to so many steps; how many what waits has behind it, and whether ranks agree."""
    import thinwire.frontends.transformers as door

    with launched(rank, size):
        trainer = trainer_in(folder, steps=steps)
        compression = door.compress(trainer, RECIPE)
        trainer.train(resume_from_checkpoint=checkpoint)
        tensors = compression.handles[-1].state_dict()["tensors"].values()
        compression.close()
        return {int(one["step"]) for one in tensors}, identical(trainer.model)


# The tests.


@pytest.mark.parametrize(("size", "kind"), MODELS)
def test_the_bits_are_those_of_ddp_with_accumulation_and_clipping_and_again(frameworks, size, kind):
    assert frameworks.run(trains, size, kind) == [(True, STEPS, 2 * STEPS, True)] * size


def test_resume_from_a_checkpoint_is_bit_for_bit(frameworks):
    files = ["thinwire-0-of-2.pt", "thinwire-1-of-2.pt"]
    assert frameworks.run(resumes, 2) == [(True, files)] * 2


def test_nan_raises_on_every_rank(frameworks):
    frameworks.run(poisoned, 2)


def test_three_ranks_resume_from_the_checkpoint_of_two(frameworks, tmp_path):
    assert frameworks.run(goes_on, 2, str(tmp_path), 2, None) == [({2}, True)] * 2
    checkpoint = str(tmp_path / "checkpoint-2")
    assert frameworks.run(goes_on, 3, str(tmp_path), 3, checkpoint) == [({3}, True)] * 3
