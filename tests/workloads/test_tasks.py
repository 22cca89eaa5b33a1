"""The small tasks: data that repeats, models that read it."""

import pytest
import torch
import torch.nn.functional as F

from support.extras import needs
from thinwire.workloads.tasks import TASKS


@needs("sklearn")
def test_batches_depend_on_step_and_rank_only() -> None:
    for task in TASKS.values():
        first, again = task.batch_at(0, 1, 0)[0], task.batch_at(0, 1, 0)[0]
        assert first.equal(again)
        assert not first.equal(task.batch_at(0, 1, 1)[0])
        assert not first.equal(task.batch_at(0, 2, 0)[0])


@needs("sklearn")
@pytest.mark.parametrize("name", TASKS)
def test_a_model_gives_its_task_a_loss_on_both_kinds_of_examples(name: str) -> None:
    task = TASKS[name]
    model = task.model()
    for inputs, targets in (task.batch_at(0, 1, 0), task.held_out(rank=1, workers=4)):
        assert torch.isfinite(F.cross_entropy(model(inputs), targets))


@needs("sklearn")
@pytest.mark.parametrize("name", TASKS)
def test_ranks_share_out_the_held_out_examples(name: str) -> None:
    whole, parts = (
        [TASKS[name].held_out(rank, workers) for rank in range(workers)] for workers in (1, 3)
    )
    assert sum(len(inputs) for inputs, _ in parts) == len(whole[0][0])
