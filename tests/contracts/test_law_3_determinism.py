"""Law 3, determinism: same seed, same bytes, same update; twice, and on every number of threads."""

import pytest

from support.contracts import ranks
from support.contracts.cases import Case, Layer, everything, with_two_sizes

# From 2^15 elements on, PyTorch splits an operation between threads.
LAYERS = (Layer((70_000,)), Layer((300, 7), "bfloat16", "transposed"), Layer((5000,), "float64"))
RANDOM = ("randomk", "terngrad", "qsgd", "s2")


@pytest.mark.parametrize(("recipe", "size"), with_two_sizes())
def test_again_with_more_threads(cluster, recipe, size):
    case = Case(recipe, LAYERS, steps=2, seed=11, settings={"density": 0.01})
    for once, again in cluster.run(ranks.repeat, size, case, (1, 2)):
        assert once == again


@pytest.mark.parametrize("recipe", RANDOM)
def test_another_seed_is_another_draw(cluster, recipe):
    grads_by = Case(recipe, (Layer((3000,), content="tied"),), steps=1, seed=1)
    seeds = cluster.run(ranks.first_wire_by_seed, 2, grads_by, (1, 2, 1))
    for first, other, again in seeds:
        assert first == again != other


@pytest.mark.parametrize("recipe", everything())
def test_the_global_generator_is_left_alone(cluster, recipe):
    case = Case(recipe, (Layer((2000,)),), steps=2, settings={"density": 0.1})
    assert all(cluster.run(ranks.leaves_the_global_generator_alone, 2, case))
