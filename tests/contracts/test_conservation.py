"""Laws 1, 2 and 7: nothing is lost, replicas stay replicas, and odd input is ordinary input."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.contracts import ranks
from support.contracts.cases import DTYPES, Case, Layer, everything
from support.contracts.strategies import cases, some_ranks
from support.contracts.strategies import ranks as sizes

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


def check(steps_by_rank: list[list[ranks.Step]]) -> None:
    """What `ranks.train` saw obeys the laws."""
    for steps in zip(*steps_by_rank, strict=True):
        assert len({step.updates for step in steps}) == 1, "updates differ between ranks"
        for step in steps:
            assert max(step.excess, default=0) <= 1, f"beyond rounding, by tensor: {step.excess}"
            assert step.in_place


@pytest.mark.parametrize("size", sizes)
@pytest.mark.parametrize("recipe", everything())
@settings(max_examples=1)
@given(data=st.data())
def test_any_gradients(cluster, recipe, size, data):
    case = data.draw(cases(recipe))
    check(cluster.run(ranks.train, size, case))


@pytest.mark.parametrize("size", some_ranks)
@pytest.mark.parametrize("recipe", everything())
def test_odd_forms(cluster, recipe, size):
    """Empty, one element, no dimensions, all zeros, zero but on one rank, not contiguous."""
    case = Case(recipe, ODD_FORMS, settings={"density": 0.01})
    check(cluster.run(ranks.train, size, case))


@pytest.mark.parametrize("recipe", everything())
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


@pytest.mark.parametrize("size", sizes)
@pytest.mark.parametrize("recipe", everything())
def test_what_ranks_deliver_is_the_total(cluster, recipe, size):
    layers = (
        Layer((900,)),
        Layer((400,), "float64", content="heavy"),
        Layer((300,), content="tied"),
        Layer((300,), content="one rank only"),
        Layer((50,), content="zeros"),
        Layer((1,)),
        Layer((0,)),
    )
    case = Case(recipe, layers, steps=1, settings={"density": 0.1})
    for exchanges in zip(*cluster.run(ranks.exchange, size, case), strict=True):
        assert len({total for total, _ in exchanges}) == 1, "totals differ between ranks"
        assert max(excess for _, excess in exchanges) <= 1
