"""Steps that are replayed on a GPU: the same bits as when every kernel is launched by itself.

Covers engine/recording.py.
"""

import pytest

from gpu import recording
from support.nccl import DEVICE, ON_CPU

RECIPES = (
    "topk(0.01)",
    "topk(0.01, codec='regional+bf16')",
    "topk(0.01, unit='model')",
    "dgc(0.01)",
    "dragonn(0.01, codec='regional+bf16')",
    "ok-topk(0.01, codec='regional+bf16', unit='bucket')",
    "union(0.01)",
    "union(0.01, dtype='bf16', unit='bucket')",
    "int4",
    "int8",
    "powersgd(4)",
    "powersgd(16, 'bf16', unit='bucket')",
)
STEPS = 40
ON_A_GPU = pytest.mark.skipif(ON_CPU, reason="nothing is recorded on a CPU")


@pytest.mark.parametrize("recipe", RECIPES)
@ON_A_GPU
def test_replayed_steps_bring_the_same_bits(gpu, size, recipe):
    """Also behind a step that was taken back, for NaN on one rank, and behind a load."""
    for launched, replayed, replays in gpu.run(recording.both_ways, size, recipe, STEPS, DEVICE):
        assert replayed == launched
        assert replays >= STEPS // 3  # dragonn samples a threshold in many of the first steps


@pytest.mark.parametrize("recipe", ["int4(rotate=True)", "topk(0.01, codec='rice+bf16')"])
@ON_A_GPU
def test_what_differs_by_step_is_not_recorded(gpu, recipe):
    for launched, replayed, replays in gpu.run(recording.both_ways, 2, recipe, STEPS, DEVICE):
        assert replayed == launched
        assert replays == 0


@ON_A_GPU
def test_gradients_that_move_are_not_recorded(gpu):
    for replays in gpu.run(recording.elsewhere_each_time, 2, "topk(0.01)", DEVICE):
        assert replays == 0


@ON_A_GPU
def test_statistics_count_steps_that_were_replayed(gpu):
    for launched, replayed in gpu.run(recording.counted_both_ways, 2, "topk(0.01)", STEPS, DEVICE):
        assert replayed == launched
