"""Law 3, determinism: the same bits whether or not the update is written over the gradient."""

import dataclasses
from unittest.mock import patch

import pytest
import torch

from support.contracts.cases import Case, Layer, digest, everything
from thinwire.comm import GroupCommunicator
from thinwire.feedback import Momentum
from thinwire.pipeline import Pipeline
from thinwire.types import StepContext, TensorSpec

LAYER = Layer((3001,), content="heavy")
COMM = GroupCommunicator()


def run(pipeline: Pipeline, case: Case, in_place: bool) -> list[str]:
    """The update and the state after each step; `in_place`: the gradient may be the output."""
    state = pipeline.init(TensorSpec("w", 3001, torch.float32, torch.device("cpu")))
    seen = []
    for step in range(case.steps):
        grad = case.gradients(step, 0, 1)["layer.0"]
        ctx = StepContext("w", step, seed=5, comm=COMM, density=pipeline.density_at(step))
        with patch("thinwire.pipeline._holds_update", return_value=in_place):
            prepared = pipeline.prepare(grad, state, ctx)
            update = pipeline.complete(prepared, grad, state, ctx, gradients=3)
        assert update is grad
        kept = [value for piece in state.values() for _, value in sorted(piece.items())]
        seen.append(digest(update, *kept))
    return seen


@pytest.mark.parametrize("monitor_xi", [0, 2])
@pytest.mark.parametrize("density", [0.01, 0.3])
@pytest.mark.parametrize("recipe", everything())
def test_the_update_and_the_state(recipe: str, density: float, monitor_xi: int) -> None:
    settings = {"density": density, "monitor_xi": monitor_xi}
    case = Case(recipe, (LAYER,), settings=settings)
    assert run(case.pipeline(), case, True) == run(case.pipeline(), case, False)


@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_the_velocity_is_no_gradient(clip_norm: float | None) -> None:
    case = Case("dgc", (LAYER,), settings={"density": 0.05})
    feedback = Momentum(clip_norm=clip_norm)
    pipeline = dataclasses.replace(case.pipeline(), feedback=feedback)
    assert run(pipeline, case, True) == run(pipeline, case, False)


def test_the_gradient_is_spent_once_it_is_added() -> None:
    """Nothing else of the step passes over all of the output."""
    case = Case("topk", (LAYER,), settings={"density": 0.01})
    pipeline = case.pipeline()
    state = pipeline.init(TensorSpec("w", 3001, torch.float32, torch.device("cpu")))
    grad = case.gradients(0, 0, 1)["layer.0"]
    ctx = StepContext("w", step=0, seed=5, comm=COMM)
    prepared = pipeline.prepare(grad, state, ctx)
    assert prepared.cleared
    assert not grad.any()
    grad[7] = 1.0  # would be gone, were the output cleared again
    assert pipeline.complete(prepared, grad, state, ctx)[7] == 1.0
