"""Law 1, conservation: nothing is lost. Law 2, replicas: every rank has the same update."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.contracts import ranks
from support.contracts.cases import Case, Layer, with_every_size
from support.contracts.laws import check, check_exchange
from support.contracts.strategies import cases


@pytest.mark.parametrize(("recipe", "size"), with_every_size())
@settings(max_examples=1)
@given(data=st.data())
def test_any_gradients(cluster, recipe, size, data):
    case = data.draw(cases(recipe))
    check(cluster.run(ranks.train, size, case))


@pytest.mark.parametrize(("recipe", "size"), with_every_size())
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
    check_exchange(cluster.run(ranks.exchange, size, case))
