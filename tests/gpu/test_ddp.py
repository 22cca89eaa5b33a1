"""DDP in all its forms, over NCCL: the same statements as in tests/frontends/test_ddp.py."""

import pytest
import torch

import thinwire as tw
from frontends import test_ddp as ddp
from gpu import ranks
from support.nccl import DEVICE, ON_CPU

RECIPE = ddp.RECIPE
FORMS = {
    "rebuilds": {},
    "find_unused": {"find_unused_parameters": True},
    "static_graph": {"static_graph": True},
    "bucket_view": {"gradient_as_bucket_view": True},
}
FLOAT = torch.float32


@pytest.mark.parametrize("unit", ["tensor", "bucket", "model"])
@pytest.mark.parametrize("form", FORMS)
def test_conserves(gpu, size, form, unit):
    recipe = tw.recipe("topk", density=0.05, bypass=100, unit=unit)
    net = ddp.Both if form in ("rebuilds", "bucket_view") else ddp.Net
    gpu.run(ddp.train_checked, size, recipe, FORMS[form], 4, FLOAT, 1, False, DEVICE, net)


@pytest.mark.parametrize("name", ["topk-dsa", "omnireduce", "union", "gtopk", "ok-topk"])
def test_conserves_beside_the_backward_pass(gpu, size, name):
    recipe = tw.recipe(name, density=0.05, bypass=100, unit="bucket")
    gpu.run(ddp.train_checked, size, recipe, {}, 4, FLOAT, 1, False, DEVICE, ddp.Both)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(gpu, dtype):
    gpu.run(ddp.train_checked, 2, RECIPE, ddp.UNUSED, 3, dtype, 1, False, DEVICE)


def test_no_sync(gpu, size):
    gpu.run(ddp.train_checked, size, RECIPE, ddp.UNUSED, 3, FLOAT, 3, False, DEVICE)


@pytest.mark.parametrize("name", ["topk", "union"])
def test_several_backward_passes(gpu, size, name):
    recipe = tw.recipe(name, density=0.05, bypass=100)
    gpu.run(ranks.several_backwards, size, recipe, DEVICE)


def test_compiled(gpu):
    backend = "eager" if ON_CPU else "inductor"
    answers = gpu.run(ddp.train_checked, 2, RECIPE, ddp.UNUSED, 3, FLOAT, 1, backend, DEVICE)
    for names in answers:
        assert {"first.weight", "middle.weight", "last.weight"} <= names


@pytest.mark.parametrize("recipe", ["dense", "topk(1.0)"])
def test_what_sends_everything_is_plain_ddp(gpu, size, recipe):
    for sent, dense_bytes, steps in gpu.run(ddp.dense_like_ddp, size, recipe, DEVICE):
        assert steps == 3
        assert sent >= dense_bytes * 0.99


@pytest.mark.parametrize("unit", ["tensor", "bucket", "model"])
def test_a_globally_unused_parameter_keeps_its_residual(gpu, unit):
    gpu.run(ddp.unused_parameter_keeps_residual, 2, unit, DEVICE)


def test_embeddings(gpu, size):
    gpu.run(ddp.sparse_embedding, size, DEVICE)


def test_join_with_uneven_inputs(gpu):
    assert gpu.run(ddp.uneven_inputs, 2, DEVICE) == [2, 4]


@pytest.mark.parametrize("unit", ["tensor", "model"])
def test_an_overflow_step_leaves_state_and_weights_as_they_were(gpu, size, unit):
    for scales, untouched in gpu.run(ddp.overflow, size, unit, DEVICE):
        assert untouched == [True, True]
        assert scales == [4.0, 8.0, 8.0, 4.0, 4.0, 8.0]


def test_residuals_follow_the_loss_scale(gpu):
    assert gpu.run(ddp.scale_follows, 2, DEVICE) == [True, True]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_bad_gradient_raises_on_every_rank(gpu, size, value):
    gpu.run(ddp.poisoned, size, value, DEVICE)


@pytest.mark.parametrize("view", [False, True], ids=["own memory", "bucket view"])
@pytest.mark.parametrize("policy", ["skip", "propagate", "raise"])
def test_gradients_of_a_step_that_is_taken_back(gpu, size, policy, view):
    for before, after in gpu.run(ranks.taken_back, size, policy, view, DEVICE):
        assert after == {"skip": [0.0], "propagate": ["nan"], "raise": ["nan"]}[policy]
        assert before > 1  # it had something else to copy


@pytest.mark.parametrize("layer", ["first", "last"])
def test_a_plain_sum_tells_every_rank_of_nan(gpu, layer):
    gpu.run(ddp.poisoned_sum, 2, layer, DEVICE)


def test_resume_is_bit_for_bit(gpu, size):
    assert gpu.run(ddp.resumed, size, DEVICE) == [True] * size
