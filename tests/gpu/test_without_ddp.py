"""`average_all` and `auto`, over NCCL."""

import pytest

import thinwire as tw
from gpu import ranks
from support.nccl import DEVICE


@pytest.mark.parametrize("recipe", ["dense", "topk(1.0)", "gtopk(1.0)", "ok-topk(1.0)"])
def test_dense_and_coo_gradients_in_one_call(gpu, size, recipe):
    looked_up = [0.0] * (size + 1)  # twice its own row and once the next, on each rank
    for rank in range(size):
        looked_up[rank] += 2
        looked_up[rank + 1] += 1
    for w, b, as_given, rows in gpu.run(ranks.means, size, recipe, DEVICE):
        assert (w, b) == ([(size - 1) / 2], [size - 1.0])
        assert as_given
        assert rows == pytest.approx([n / size for n in looked_up])


def test_a_subgroup(gpu):
    assert gpu.run(ranks.in_subgroup, 4, DEVICE) == [-1.0, -1.0, 2.5, 2.5]


CHOICES = ("topk", "union", "ok-topk", "gtopk")  # all add up in float32
AUTOS = {
    "as it is": (tw.recipe("auto", density=0.05), 2**-7),
    "without 16 bits": (tw.recipe("auto", density=0.05, choices=CHOICES, codec=""), 1e-5),
}


@pytest.mark.parametrize("which", AUTOS)
def test_auto_loses_nothing_while_it_chooses(gpu, size, which, tmp_path):
    auto, tolerance = AUTOS[which]
    answers = gpu.run(ranks.auto_balances, size, auto, str(tmp_path), 30, DEVICE)
    lost, bits, choice = answers[0]
    assert lost <= tolerance
    assert all(answer[1:] == (bits, choice) for answer in answers)


def test_auto_goes_on_with_its_choice(gpu, size):
    kept = dict.fromkeys("abc", "topk")
    assert gpu.run(ranks.auto_resumes, size, DEVICE) == [(True, kept)] * size
