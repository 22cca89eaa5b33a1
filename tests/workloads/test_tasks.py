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
def test_a_model_gives_its_task_a_loss(name: str) -> None:
    task = TASKS[name]
    inputs, targets = task.batch_at(0, 1, 0)
    assert torch.isfinite(F.cross_entropy(task.model()(inputs), targets))
