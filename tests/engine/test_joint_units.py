"""Tensors that share a payload get what each gets by itself, bit for bit.

Covers engine/roster.py, codec/joint.py.
"""

from datetime import timedelta
from math import prod

import pytest
import torch

import thinwire as tw
from support.codec.cases import bits_of
from support.counting import counted

TIMEOUT = timedelta(seconds=15)
BYPASS = 30
RECIPES = ("qsgd", "signsgd", "terngrad", "3lc", "sketchml", "skcompress", "deepreduce")
FORMS = {
    name: tw.recipe(name, bypass=BYPASS, **({} if name in RECIPES[:4] else {"density": 0.05}))
    for name in RECIPES
} | {
    "deepreduce-sparse": tw.recipe(
        "deepreduce", index="bloom('p2', fpr=0.01)", value="qsgd(7)", sparse=True, bypass=BYPASS
    ),
    "sketchml-warm": tw.recipe(
        "sketchml", density=0.02, bypass=BYPASS, warm_up={"steps": 2, "densities": [0.5, 0.1]}
    ),
    "no-bypass": tw.recipe("qsgd", bypass=0),
}
SHAPES = {
    "bias": (7,),
    "nothing": (0,),
    "weight": (40, 50),
    "number": (),
    "middle": (33,),
    "more": (5, 4),
    "none either": (3, 0),
    "big": (130, 157),
    "tail": (BYPASS,),
    "just": (BYPASS + 1,),
}
STEPS = 3


def gradients(rank, step, dtype):
    """Small multiples of 2^-6 in small tensors, which by themselves are summed by the backend.

    So the order of adding them up does not show, nor does the sign of zero.
    """
    draw = torch.Generator().manual_seed(100 * step + rank)
    grads = {name: torch.randn(shape, generator=draw) for name, shape in SHAPES.items()}
    grads["middle"] *= 1000
    grads["just"][::3] = 0
    for name, grad in grads.items():
        if grad.numel() <= BYPASS:
            grads[name] = (grad * 64).round() / 64 + 0.0
    return {name: grad.to(dtype) for name, grad in grads.items()}


def run(sync, rank, steps, dtype, together):
    """The updates of these steps, tensor by tensor."""
    seen = []
    for step in steps:
        grads = gradients(rank, step, dtype)
        if together:
            updates = sync.average_all(grads)
        else:
            updates = {name: sync.average(name, grad) for name, grad in grads.items()}
        seen.append({name: bits_of(update.clone().view(-1)) for name, update in updates.items()})
    return seen


def known(sync):
    """All that is kept; of a tensor that travels whole that is nothing, or zeros."""
    tensors = sync.state_dict()["tensors"]
    return {
        (name, key): bits_of(value.view(-1))
        for name, state in tensors.items()
        for key, value in state.items()
        if key == "step" or prod(SHAPES[name]) > BYPASS or value.any()
    }


def in_both_ways(group, rank, size, recipe, dtype):
    """Updates and states of tensors together and one by one, and how many units there were."""
    outcomes = []
    for together in (True, False):
        sync = tw.Synchronizer(recipe, group, timeout=TIMEOUT, seed=5)
        updates = run(sync, rank, range(STEPS), dtype, together)
        outcomes.append((updates, known(sync), len(sync.roster.units)))
        sync.close()
    return outcomes


def resumed_the_other_way(group, rank, size, recipe, first_together):
    """A state of the one, gone on with by the other, and as if nothing had happened."""
    dtype = torch.float32
    before = tw.Synchronizer(recipe, group, timeout=TIMEOUT, seed=5)
    run(before, rank, range(2), dtype, first_together)
    after = tw.Synchronizer(recipe, group, timeout=TIMEOUT, seed=5)
    after.load_state_dict(before.state_dict())
    outcomes = []
    for sync, together in ((before, first_together), (after, not first_together)):
        outcomes.append((run(sync, rank, range(2, 4), dtype, together), known(sync)))
        sync.close()
    return outcomes


def messages_of_a_step(group, rank, size, recipe, tensors):
    """How many messages one step hands to the backend."""
    sync = tw.Synchronizer(recipe, group, timeout=TIMEOUT)
    for _ in range(2):
        with counted() as counts:
            sync.average_all({f"w{i}": torch.randn(1200) for i in range(tensors)})
    sync.close()
    return counts.gloo.total()


def same(one, two):
    assert one.keys() == two.keys()
    return [key for key in one if not torch.equal(one[key], two[key])]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", FORMS)
def test_together_is_as_one_by_one(cluster, name, size):
    for joint, alone in cluster.run(in_both_ways, size, FORMS[name], torch.float32):
        for here, there in zip(joint[0], alone[0], strict=True):
            assert not same(here, there)
        assert not same(joint[1], alone[1])
        assert (joint[2], alone[2]) == (1, len(SHAPES))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["qsgd", "signsgd", "deepreduce"])
def test_together_is_as_one_by_one_in_other_dtypes(cluster, name, dtype):
    for joint, alone in cluster.run(in_both_ways, 2, FORMS[name], dtype):
        for here, there in zip(joint[0], alone[0], strict=True):
            assert not same(here, there)
        assert not same(joint[1], alone[1])


@pytest.mark.parametrize("first_together", [True, False])
@pytest.mark.parametrize("name", ["3lc", "terngrad", "skcompress"])
def test_a_saved_state_fits_either_way(cluster, name, first_together):
    for kept, loaded in cluster.run(resumed_the_other_way, 2, FORMS[name], first_together):
        for here, there in zip(kept[0], loaded[0], strict=True):
            assert not same(here, there)
        assert not same(kept[1], loaded[1])


@pytest.mark.parametrize("name", [*RECIPES, "deepreduce(sparse=True)"])
def test_sixty_tensors_take_no_more_messages_than_one(cluster, name):
    """They took 122 with two ranks, and 244 with three, when each was an exchange."""
    one, sixty = (cluster.run(messages_of_a_step, 2, name, tensors) for tensors in (1, 60))
    assert one == sixty
    assert min(one) > 0


def test_what_does_not_join():
    """A selection over a whole bucket has one scale; and steady payloads ask nobody for sizes."""
    assert not tw.recipe("qsgd", unit="bucket").joins
    assert not tw.recipe("topk | raw+centroid2 | allgather | residual").joins
    assert not tw.recipe("topk | raw+qsgd | gtopk | residual").joins
