"""Every way to write a recipe down, and back."""

import json

import pytest

import thinwire as tw
from support.extras import needs
from thinwire.codec import Bf16Value, Pair, QsgdValue, RawIndex, RawValue
from thinwire.codec.index.rice import RiceIndex


@pytest.mark.parametrize("name", tw.recipes())
def test_a_recipe_survives_being_written_down(name):
    recipe = tw.recipe(name, warm_up=tw.WarmUp(10))
    assert tw.resolve(tw.to_dict(recipe)) == recipe
    assert tw.resolve(json.dumps(tw.to_dict(recipe))) == recipe


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raw", Pair()),
        ("raw+raw", Pair(RawIndex(), RawValue())),
        ("bf16", Pair(RawIndex(), Bf16Value())),
        ("rice", Pair(RiceIndex(), RawValue())),
        ("rice+bf16", Pair(RiceIndex(), Bf16Value())),
        (" raw + qsgd(bits=4, bucket=64) ", Pair(RawIndex(), QsgdValue(bits=4, bucket=64))),
        ({"value": {"name": "qsgd", "bits": 5}}, Pair(RawIndex(), QsgdValue(bits=5))),
        ("none", None),
    ],
)
def test_codecs(text, expected):
    collective = "dense" if expected is None else "allgather"
    assert tw.recipe("topk", codec=text, collective=collective).codec == expected


@pytest.mark.parametrize("text", ["zip", "raw+zip", "zip+raw", "bf16+raw", "raw+raw+raw", "+"])
def test_unknown_codecs_are_refused(text):
    with pytest.raises(tw.RecipeError):
        tw.recipe("topk", codec=text)


def test_four_pieces():
    recipe = tw.resolve("topk(0.02) | rice+bf16 | ok-topk | residual")
    assert recipe.sparsifier.density == 0.02
    # A collective that prunes means the same k as the sparsifier.
    assert recipe.density_at(0) == 0.02


@needs("yaml")
def test_yaml():
    recipe = tw.resolve("recipe: topk\ndensity: 0.05\nunit: model\n")
    assert recipe == tw.recipe("topk", density=0.05, unit="model")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("topk | raw | allgather", "3 parts"),
        ("topk(density=__import__('os'))", "plain values only"),
        ("topk(0.1, 0.2, 0.3)", "at most"),
        ('{"recipe": "topk"', "JSON"),
        ("[1, 2]", "name"),
        ({"sparsifyer": "topk"}, "'sparsifyer'"),
    ],
)
def test_what_cannot_be_read_is_said_to_be_so(text, says):
    with pytest.raises(tw.RecipeError, match=says):
        tw.resolve(text)


def test_a_warm_up_then_the_recipes_own_density():
    recipe = tw.recipe("topk", density=0.001, warm_up=tw.WarmUp(2, (0.25, 0.1)))
    assert [recipe.density_at(step) for step in range(6)] == [0.25, 0.25, 0.1, 0.1, 0.001, 0.001]
