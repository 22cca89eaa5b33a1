"""A step asks the host at most once, sends nothing over Gloo and starts NCCL twice for a bucket."""

import pytest

from gpu import counts
from support.nccl import DEVICE, ON_CPU

# As they come, and as they are meant to be used on a fast network.
RECIPES = (
    "dense",
    "bf16",
    "int8",
    "int4(rotate=True)",
    "topk(0.01)",
    "topk(0.01, codec='regional+bf16')",
    "dgc(0.01)",
    "dragonn(0.01)",
    "ok-topk(0.01)",
    "union(0.01)",
    "union(0.01, dtype='bf16')",
    "powersgd(4)",
    "powersgd(4, 'bf16')",
)
STEPS = 3
ON_A_GPU = pytest.mark.skipif(ON_CPU, reason="counts what the GPU's path does")


@pytest.mark.parametrize("recipe", RECIPES)
@ON_A_GPU
def test_a_step_does_not_wait_for_the_host(gpu, size, recipe):
    for buckets, steps in gpu.run(counts.steps_of, size, recipe, STEPS, DEVICE):
        assert buckets >= 3
        for step in steps:
            assert step.syncs.total() <= 1, step.syncs
            assert step.gloo.total() == 0, step.gloo
            assert 1 <= step.nccl.total() <= 2 * buckets, step.nccl


@pytest.mark.parametrize("recipe", ["dense", "topk(0.01)"])
def test_what_is_counted_is_there(gpu, recipe):
    """The instrument itself: a step that is known to wait and to speak is seen to."""
    for before, inside in gpu.run(counts.known, 2, recipe, DEVICE):
        assert before == 0
        assert inside.gloo["send"] >= 1
        assert inside.gloo["recv"] >= 1
        assert (inside.nccl.total() >= 1) != ON_CPU
        assert (inside.syncs.total() >= 3) != ON_CPU


@pytest.mark.parametrize(
    "recipe",
    ["dense", "bf16", "int8", "int4", "topk(0.01)", "ok-topk(0.01)", "union(0.01)", "gtopk(0.01)"],
)
def test_bytes_counted_are_those_on_the_sockets(gpu, size, recipe):
    """3 % for framing, and a little for messages so small that NCCL sends flags with each word."""
    for counted, on_sockets in gpu.run(counts.bytes_of, size, recipe, DEVICE):
        assert on_sockets == pytest.approx(counted, rel=0.03, abs=100_000)
