"""Law 1 for pieces that do not conserve: unbiased, and within the error bound that they state."""

import math

import pytest

import thinwire as tw
from support.contracts import ranks
from support.contracts.cases import Case, Layer, everything
from support.contracts.laws import counts_all, uses_estimates

STEPS = 150


def unbiased_recipes() -> list[str]:
    pipelines = {name: Case(name, ()).pipeline() for name in everything()}
    return [n for n, p in pipelines.items() if not counts_all(p) and not uses_estimates(p)]


def test_the_ones_that_do_not_conserve_are_known():
    assert {"terngrad", "qsgd", "s2"} <= set(unbiased_recipes()) <= set(tw.recipes())


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("recipe", unbiased_recipes())
def test_right_on_average(cluster, recipe, size):
    case = Case(recipe, (Layer((60,)),), steps=STEPS, seed=3)
    for true_mean, mean, variance, error in cluster.run(ranks.samples, size, case):
        assert error <= 1
        assert sum(variance) > 0, "nothing was rounded: this test proves nothing"
        errors = [found - expected for found, expected in zip(mean, true_mean, strict=True)]
        shrinkage = [e * math.copysign(1, x) for e, x in zip(errors, true_mean, strict=True)]
        deviation = math.sqrt(sum(variance) / STEPS)  # of a sum of all errors, whatever the signs
        assert abs(sum(errors)) <= 6 * deviation
        assert abs(sum(shrinkage)) <= 6 * deviation
        assert math.hypot(*errors) <= 2 * deviation


@pytest.mark.parametrize("recipe", [r for r in unbiased_recipes() if r != "s2"])
def test_ranks_round_independently(cluster, recipe):
    """A sketch's hashes are shared: its noise belongs to the sum. Others round each for itself.

    The same gradient everywhere: P independent roundings have a P-th of the variance."""
    layer = Layer((200,), content="tied")
    one = cluster.run(ranks.samples, 1, Case(recipe, (layer,), steps=100, seed=3))
    four = cluster.run(ranks.samples_of_rank_0, 4, Case(recipe, (layer,), steps=100, seed=3))
    ratio = sum(four[0][2]) / sum(one[0][2])
    assert 0.2 < ratio < 0.3
