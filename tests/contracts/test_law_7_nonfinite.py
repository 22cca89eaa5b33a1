"""Law 7, degenerate input: NaN or Inf on one rank is known to all ranks and enters no state."""

import math

import pytest

from support.contracts import ranks
from support.contracts.cases import Case, Layer, everything

LAYERS = (Layer((600,)), Layer((30, 20), "bfloat16", "transposed"))


# Each way to take it, each poison, and each place, over the sizes in turn.
SIZES = (2, 3, 4)
MODES = ("raise", "skip", "propagate")
POISONS = (math.nan, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("recipe", everything())
def test_one_rank_brings_poison(cluster, recipe, size):
    mode, poison, culprit = MODES[size % 3], POISONS[size % 4], size // 2
    case = Case(recipe, LAYERS, settings={"density": 0.05})
    for clean, step in cluster.run(ranks.poison, size, case, mode, poison, culprit):
        assert step.raised.startswith("NonFiniteError") == (mode == "raise")
        assert step.zeros == (mode == "skip")
        assert step.nans == (mode == "propagate")
        assert step.state_kept
        assert not step.sent
        assert step.next_update == clean, "the poisoned step left a trace"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("poison", POISONS[:3])
def test_every_way_to_take_every_poison(cluster, mode, poison):
    case = Case("dgc", LAYERS, settings={"density": 0.05})
    for clean, step in cluster.run(ranks.poison, 3, case, mode, poison, 2):
        assert step.raised.startswith("NonFiniteError") == (mode == "raise")
        assert (step.zeros, step.nans) == (mode == "skip", mode == "propagate")
        assert step.state_kept
        assert step.next_update == clean


def test_the_culprit_and_the_tensor_are_named(cluster):
    case = Case("topk", LAYERS, settings={"density": 0.05})
    for rank, (_, step) in enumerate(cluster.run(ranks.poison, 3, case, "raise", math.nan, 1)):
        assert "gradients of rank 1 " in step.raised
        assert ("layer.1" in step.raised) == (rank == 1)
        assert "layer.0" not in step.raised


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_large_is_not_infinite(cluster, dtype):
    """The largest numbers of a dtype are finite, and P = 1 changes nothing about them."""
    largest = {"float16": 6e4, "float32": 3e38, "float64": 1e308}[dtype]
    layers = (Layer((10,), dtype, content="signs", scale=largest),)
    check = cluster.run(ranks.passes_through, 1, Case("topk", layers, settings={"density": 1.0}))
    assert check == [True]
