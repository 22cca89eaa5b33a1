"""Law 7, degenerate input: odd shapes, nothing selected and everything selected are ordinary.

NaN and Inf have a file of their own.
"""

import pytest

from support.contracts import ranks
from support.contracts.cases import DTYPES, Case, Layer, everything, with_a_density, with_two_sizes
from support.contracts.laws import check

ODD_FORMS = (
    Layer((0,)),
    Layer((3, 0, 2)),
    Layer(()),
    Layer((1,)),
    Layer((2,)),
    Layer((700,), content="zeros"),
    Layer((700,), content="one rank only"),
    Layer((40, 30), layout="transposed"),
    Layer((40, 30), layout="strided"),
)


@pytest.mark.parametrize(("recipe", "size"), with_two_sizes())
def test_odd_forms(cluster, recipe, size):
    """Empty, one element, no dimensions, all zeros, zero but on one rank, not contiguous."""
    case = Case(recipe, ODD_FORMS, settings={"density": 0.01})
    check(cluster.run(ranks.train, size, case))


@pytest.mark.parametrize("recipe", with_a_density())
def test_next_to_nothing_selected(cluster, recipe):
    """So few of so many that the mean is taken where the total is not zero, and only there."""
    case = Case(recipe, (Layer((60_000,)),), settings={"density": 0.0005})
    check(cluster.run(ranks.train, 4, case))


@pytest.mark.parametrize("recipe", everything())
def test_everything_selected(cluster, recipe):
    """k = n."""
    layers = tuple(Layer((n,), dtype) for n, dtype in zip((1, 500, 33, 64), DTYPES, strict=True))
    check(cluster.run(ranks.train, 3, Case(recipe, layers, settings={"density": 1.0})))


@pytest.mark.parametrize("recipe", everything())
def test_without_a_process_group(recipe):
    """P = 1 needs no torch.distributed."""
    layers = (*ODD_FORMS, *(Layer((500,), dtype) for dtype in DTYPES))
    check([ranks.train(None, 0, 1, Case(recipe, layers, settings={"density": 0.1}))])
