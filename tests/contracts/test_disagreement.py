"""Ranks that disagree and recipes that cannot be are refused, by name, before anything is sent."""

import math
import re
from dataclasses import dataclass
from typing import ClassVar

import pytest

import thinwire as tw
from support.contracts import ranks
from support.contracts.cases import Case, Layer
from support.contracts.strategies import ranks as sizes
from thinwire.collective import AllGather, Dense
from thinwire.cookbook import RECIPES

LAYERS = (Layer((60, 20)), Layer((50,)))


@pytest.mark.parametrize("size", sizes[1:])
@pytest.mark.parametrize("about", ranks.FROM_THE_START)
def test_ranks_that_disagree_from_the_start(cluster, about, size):
    case = Case("topk", LAYERS)
    for raised, sent, _ in cluster.run(ranks.disagree, size, case, about):
        assert raised.startswith("DisagreementError: ranks disagree on the recipe or the seed")
        assert all(f"rank {r}: " in raised for r in range(size))
        assert not sent


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("about", ["shape", "size", "dtype", "name", "order", "count"])
def test_ranks_that_disagree_on_a_step(cluster, about, size):
    case = Case("topk", LAYERS)
    undisturbed = cluster.run(ranks.updates_of, size, case)
    results = cluster.run(ranks.disagree, size, case, about)
    for (raised, sent, later), expected in zip(results, undisturbed, strict=True):
        assert raised.startswith("DisagreementError: ranks disagree on the tensors")
        assert all(f"rank {r}: " in raised for r in range(size))
        assert "layer.0: (60, 20) torch.float32" in raised
        assert not sent
        assert later == expected, "the refused step left a trace"


def with_density() -> list[str]:
    return [name for name in tw.recipes() if "density" in str(RECIPES[name].__annotations__)]


@pytest.mark.parametrize("density", [0, 0.0, 1.5, -1, -0.01, math.nan, math.inf])
@pytest.mark.parametrize("recipe", with_density())
def test_a_density_that_is_no_share(recipe, density):
    with pytest.raises(tw.RecipeError, match=re.escape(f"density={density} must be in (0, 1]")):
        tw.recipe(recipe, density=density)
    with pytest.raises(tw.RecipeError, match=re.escape(f"density={density} must be in (0, 1]")):
        tw.Synchronizer({"recipe": recipe, "density": density})


@pytest.mark.parametrize("name", ["topkk", "", "TOPK", "ok_topk"])
def test_an_unknown_recipe_is_named_beside_those_there_are(name):
    with pytest.raises(tw.RecipeError, match=re.escape(repr(name))) as error:
        tw.recipe(name)
    assert all(known in str(error.value) for known in tw.recipes())


@pytest.mark.parametrize("recipe", tw.recipes())
def test_an_unknown_setting_is_named(recipe):
    with pytest.raises(tw.RecipeError, match="'densty'"):
        tw.recipe(recipe, densty=0.1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"unit": "layer"}, "unit='layer'"),
        ({"bypass": -1}, "bypass=-1"),
        ({"feedback": "memory"}, "'memory'"),
        ({"collective": "ring"}, "'ring'"),
        ({"sparsifier": "best(0.1)"}, "'best'"),
        ({"codec": "zip"}, "'zip'"),
        ({"codec": "raw+zip"}, "'zip'"),
        ({"sparsifier": {"name": "topk", "k": 5}}, "'k'"),
        ({"collective": 3}, "collective=3"),
    ],
)
def test_a_piece_or_value_that_does_not_exist(settings, says):
    with pytest.raises(tw.RecipeError, match=re.escape(says)):
        tw.recipe("topk", **settings)


@pytest.mark.parametrize("nonfinite", ["ignore", "", None])
def test_an_unknown_way_to_take_nan(nonfinite):
    with pytest.raises(tw.RecipeError, match=f"nonfinite={nonfinite!r}"):
        tw.Synchronizer("topk", nonfinite=nonfinite)


@dataclass(frozen=True)
class Sketch:
    """A payload that adds: cannot be gathered."""

    kind: ClassVar[str] = "linear"

    def project(self, s, ctx):
        raise AssertionError("never reached")

    def recover(self, total, numel, ctx):
        raise AssertionError("never reached")


@pytest.mark.parametrize(
    ("codec", "collective", "found"),
    [(Sketch(), AllGather(), "linear"), (Sketch(), Dense(), "linear"), (None, AllGather(), "none")],
)
def test_a_codec_of_the_wrong_kind(codec, collective, found):
    with pytest.raises(tw.RecipeError, match=re.escape(f"{codec!r} of kind '{found}'")):
        tw.Pipeline(codec=codec, collective=collective)


def test_refusals_are_value_errors():
    """So that callers need not know thinwire to catch them."""
    with pytest.raises(ValueError, match="density"):
        tw.recipe("topk", density=2)
