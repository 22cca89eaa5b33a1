"""Which steps may be replayed: those in which the same kernels are launched.

That replays bring the same bits is shown on a GPU, in tests/gpu/test_recording.py.
"""

import pytest
import torch

import thinwire as tw
from thinwire.engine.recording import launches_of
from thinwire.types import TensorSpec

SPEC = TensorSpec("w", 5000, torch.float32, torch.device("cpu"), ((5000,),))


def launches(recipe, step, state=None):
    pipeline = tw.recipe(recipe)
    return launches_of(pipeline, pipeline.init(SPEC) if state is None else state, step)


@pytest.mark.parametrize(
    "recipe", ["topk(0.01)", "dgc(0.01)", "topk(0.01, codec='regional+bf16')", "int4", "int8"]
)
def test_steps_alike(recipe):
    assert launches(recipe, 7) is not None
    assert launches(recipe, 7) == launches(recipe, 8)


@pytest.mark.parametrize(
    "recipe",
    [
        "int4(rotate=True)", "int4(rounding='stochastic')", "randomk(0.01)", "clt-k(0.01)",
        "micro(0.01)", "qsgd", "gtopk(0.01)",
    ],
)  # fmt: skip
def test_what_differs_by_step_is_never_replayed(recipe):
    assert launches(recipe, 7) is None


def test_a_warm_up_has_other_sizes():
    recipe = "topk(0.01, warm_up={'steps': 10})"
    assert launches(recipe, 9) != launches(recipe, 10)
    assert launches(recipe, 40) == launches(recipe, 41)


def test_a_reset_is_another_step_than_the_others():
    recipe = "topk(0.01) | raw+raw | allgather | residual(1.0, 10)"
    assert launches(recipe, 9) == launches(recipe, 11)
    assert launches(recipe, 9) != launches(recipe, 10)


def test_union_has_another_room_when_the_union_has_grown():
    pipeline = tw.recipe("union(0.01)")
    state = pipeline.init(SPEC)
    assert launches_of(pipeline, state, 7) is None  # not known before the first exchange
    state["collective"]["blocks"] = torch.tensor(40)
    before = launches_of(pipeline, state, 7)
    assert before == launches_of(pipeline, state, 8) is not None
    state["collective"]["blocks"] = torch.tensor(50)
    assert launches_of(pipeline, state, 8) != before


def test_a_low_rank_draws_its_first_factors():
    pipeline = tw.recipe("powersgd(4, start=3)")
    state = pipeline.init(SPEC)
    assert launches_of(pipeline, state, 7) is None
    state["collective"]["factor/w"] = torch.ones(4)
    assert launches_of(pipeline, state, 2) is None  # all of it travels until then
    assert launches_of(pipeline, state, 7) == launches_of(pipeline, state, 8) is not None


def test_dragonn_launches_more_where_it_samples_a_threshold():
    pipeline = tw.recipe("dragonn(0.01)")
    state = pipeline.init(SPEC)
    assert launches_of(pipeline, state, 100) is None
    state["sparsifier"] |= {"sampled_at": torch.tensor(100), "sampled_for": torch.tensor(50)}
    assert launches_of(pipeline, state, 101) == launches_of(pipeline, state, 115) is not None
    assert launches_of(pipeline, state, 116) is None
