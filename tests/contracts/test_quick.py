"""`make quick`: laws 1 and 2 at P = 1, 2 and 3, for every registered piece and every recipe.

Pieces are read from the registries, so that a new one, or one that a third party registered, is
tried without a line here. The other files of this folder try all laws on many more inputs.
"""

import pytest

import thinwire as tw
from support.contracts import ranks
from support.contracts.cases import Case, Layer
from support.contracts.laws import check, check_exchange
from support.pieces import recipes_by_piece

LAYERS = (
    Layer((900,)),
    Layer((30, 20), "bfloat16", "transposed", "heavy"),
    Layer((64,), content="one rank only"),
    Layer((0,)),
)
RECIPES = recipes_by_piece() | {f"recipe {name}": name for name in tw.recipes()}


@pytest.mark.parametrize("what", RECIPES)
def test_nothing_is_lost_and_replicas_agree(cluster, what):
    case = Case(RECIPES[what], LAYERS, steps=2, seed=3, settings={"density": 0.1})
    for size in (1, 2, 3):
        check(cluster.run(ranks.train, size, case))
        if not case.pipeline().conserves:  # then what the ranks delivered, within its bound
            check_exchange(cluster.run(ranks.exchange, size, case))
