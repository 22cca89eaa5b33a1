"""Every way to write a recipe down, and back.

Covers cookbook/__init__.py.
"""

import dataclasses
import json

import pytest
import torch

import thinwire as tw
from support.extras import needs
from thinwire.codec import Pair
from thinwire.codec.index import RawIndex
from thinwire.codec.index.rice import RiceIndex
from thinwire.codec.value import Bf16Value, QsgdValue, RawValue


@pytest.mark.parametrize("name", tw.recipes())
def test_a_recipe_survives_being_written_down(name):
    recipe = tw.recipe(name, warm_up=tw.WarmUp(10))
    assert tw.recipe(recipe.to_dict()) == recipe
    assert tw.recipe(json.dumps(recipe.to_dict())) == recipe


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
    recipe = tw.recipe("topk(0.02) | rice+bf16 | ok-topk | residual")
    assert recipe.sparsifier.density == 0.02
    assert recipe.collective.density is None  # as many as the sparsifier selects


@needs("yaml")
def test_yaml():
    recipe = tw.recipe("recipe: topk\ndensity: 0.05\nunit: model\n")
    assert recipe == tw.recipe("topk", density=0.05, unit="model")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("topk | raw | allgather", "3 parts"),
        ("topk(density=__import__('os'))", "plain values only"),
        ("topk(0.1, 0.2, 0.3)", "at most"),
        ('{"recipe": "topk"', "JSON"),
        ("[1, 2]", "name"),
        ({"sparsifyer": "topk"}, r"'sparsifyer' \(did you mean 'sparsifier'\?\)"),
        ({"recpe": "topk"}, r"'recpe' \(did you mean 'recipe'\?\)"),
        ("topk(densty=0.1)", r"'densty' \(did you mean 'density'\?\); it has density"),
        ("oktopk", r"'oktopk' \(did you mean 'ok-topk'\?\); there are dense"),
        ("topk | raw | algather | none", r"'algather' \(did you mean 'allgather'\?\)"),
        ("sparselocco", r"\(did you mean 'sparseloco'\?\)"),
        ("sparseloco(every=9)", r"thinwire\.outer\(model, optimizer, \"sparseloco\"\)"),
    ],
)
def test_what_cannot_be_read_is_said_to_be_so(text, says):
    with pytest.raises(tw.RecipeError, match=says):
        tw.recipe(text)


def test_a_warm_up_then_the_recipes_own_density():
    """`None`: each piece has its own density again, the sparsifier's and the collective's."""
    recipe = tw.recipe("topk", density=0.001, warm_up=tw.WarmUp(2, (0.25, 0.1)))
    assert [recipe.density_at(step) for step in range(6)] == [0.25, 0.25, 0.1, 0.1, None, None]
    assert recipe.sparsifier.density == 0.001


@pytest.mark.parametrize("collective", ["gtopk", "ok-topk"])
def test_a_density_of_the_collective_acts(collective):
    """1,000 of 10,000 elements are selected; the sum is pruned to the collective's own share."""
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    counts = {}
    for written in (collective, f"{collective}(0.01)"):
        recipe = tw.recipe(f"topk(0.1) | raw | {written} | residual")
        sync = tw.Synchronizer(dataclasses.replace(recipe, bypass=0))
        counts[written] = int(sync.average("w", x.clone()).count_nonzero())
        sync.close()
    assert counts == {collective: 1000, f"{collective}(0.01)": 100}


@pytest.mark.parametrize("collective", ["gtopk", "ok-topk"])
def test_a_warm_up_comes_before_the_collectives_density(collective):
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    recipe = tw.recipe(f"topk(0.1) | raw | {collective}(0.01) | none")
    sync = tw.Synchronizer(dataclasses.replace(recipe, bypass=0, warm_up=tw.WarmUp(1, (0.5,))))
    counts = [int(sync.average("w", x.clone()).count_nonzero()) for _ in range(2)]
    sync.close()
    assert counts == [5000, 100]


def test_a_collective_that_prunes_needs_a_density_from_somewhere():
    with pytest.raises(tw.RecipeError, match="prunes to a density"):
        tw.recipe("nonzero | raw | gtopk | residual")
    assert tw.recipe("nonzero | raw | gtopk(0.01) | residual").collective.density == 0.01
