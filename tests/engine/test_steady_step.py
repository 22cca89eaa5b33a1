"""Steps that ask the host nothing, as on a GPU; here their kernels run on the CPU."""

import pytest
import torch

import thinwire as tw
from support.launches import as_on_a_gpu
from thinwire.engine.backward import BackwardPass

RECIPES = [
    "dense",
    "bf16",
    "int8",
    "int4(rotate=True)",
    "topk(0.1)",
    "dgc(0.1)",
    "ok-topk(0.1)",
    "union(0.1)",
    "dragonn(0.1)",
    "chunk-topk(0.1)",
    "powersgd(2, start=0)",
    "powersgd(2, 'bf16', start=1)",
    "topk(0.1) | raw | allgather | adam(workers=4)",
    "topk(0.1) | raw | allgather | adam(refresh=2)",
    "topk(0.1) | raw | allgather | residual(0.9, reset_every=2)",
    "block(0.1, 16) | none | union(16) | momentum",
    "block(0.1, 16) | raw+fp16 | allgather | residual",
    "clt-k(0.1)",
    "micro(0.1)",
]


@pytest.fixture(autouse=True)
def steady_here():
    with as_on_a_gpu():
        yield


def gradients(step):
    data = torch.Generator().manual_seed(step)
    shapes = {"w": (40, 50), "b": (40,), "v": (30, 40)}
    return {name: torch.randn(shape, generator=data) for name, shape in shapes.items()}


def run(sync, grads):
    step = BackwardPass(sync)
    step.add(grads)
    step.finish()


def feedback(sync):
    tensors = sync.state_dict()["tensors"]
    return {
        f"{name}/{key}": value.clone()
        for name, state in tensors.items()
        for key, value in state.items()
        if key.startswith("feedback/")
    }


@pytest.mark.parametrize("recipe", RECIPES)
def test_they_are_steady_and_an_average(recipe):
    sync = tw.Synchronizer(recipe)
    assert sync.is_steady(torch.device("cpu"))
    for step in range(3):
        grads = gradients(step)
        run(sync, grads)
        assert all(grad.isfinite().all() and grad.any() for grad in grads.values())
        assert sync.roster.units and not sync.runner.found_bad


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_gradient_that_is_not_finite_raises_and_enters_nothing(recipe, value):
    sync = tw.Synchronizer(recipe)
    run(sync, gradients(0))
    bad = gradients(1)
    bad["v"][3, 5] = value
    with pytest.raises(tw.NonFiniteError, match="rank 0"):
        run(sync, bad)
    assert all(state.isfinite().all() for state in feedback(sync).values())
    run(sync, gradients(2))  # it can go on


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(("policy", "update"), [("skip", 0.0), ("propagate", torch.nan)])
def test_a_step_that_is_left_out_leaves_all_state_as_it_was(recipe, policy, update):
    sync = tw.Synchronizer(recipe, nonfinite=policy)
    run(sync, gradients(0))
    before, bad = feedback(sync), gradients(1)
    bad["w"].fill_(torch.inf)
    run(sync, bad)
    after = feedback(sync)
    assert all(torch.equal(after[key], value) for key, value in before.items())
    expected = torch.full((), update)
    assert all(torch.equal(g.isnan(), expected.expand_as(g).isnan()) for g in bad.values())
    assert policy == "propagate" or not any(grad.any() for grad in bad.values())
