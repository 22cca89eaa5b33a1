"""Tiers of quality: which recipes each admits, and that the committed losses say so."""

import json
from pathlib import Path

import pytest

import thinwire as tw
from thinwire.auto import Auto
from thinwire.auto.quality import FAST, NEAR, admits, choices_of, quality_of
from thinwire.errors import RecipeError

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("name", [name for name in tw.recipes() if name != "auto"])
def test_every_recipe_has_a_tier(name: str) -> None:
    tier = quality_of(tw.recipe(name))
    assert tier == ("exact" if name in ("dense", "parallax") else tier)
    assert (tier == "near") == (name in (*NEAR, "fp16"))


def test_tiers_admit_each_other_upwards() -> None:
    admitted = {
        quality: [n for n in ("dense", "int4", "topk") if admits(quality, tw.recipe(n))]
        for quality in ("exact", "near", "fast")
    }
    assert admitted == {
        "exact": ["dense"],
        "near": ["dense", "int4"],
        "fast": ["dense", "int4", "topk"],
    }


def methods(recipe: tw.Pipeline) -> set[str]:
    assert isinstance(recipe, Auto)
    return {label.split(" ")[0] for label, _ in recipe.choices}


def test_auto_offers_its_tier_and_is_near_unless_told() -> None:
    assert methods(tw.recipe("auto(quality='exact')")) == set()
    assert methods(tw.recipe("auto")) == methods(tw.recipe("auto(quality='near')")) == set(NEAR)
    assert methods(tw.recipe("auto(quality='fast')")) == {*NEAR, *FAST}
    assert methods(tw.recipe("auto(choices=('topk',))")) == {"topk"}


def test_what_auto_offers_is_of_its_tier() -> None:
    recipe = tw.recipe("auto")
    assert isinstance(recipe, Auto)
    assert {quality_of(choice) for _, choice in recipe.choices} == {"near"}


def test_unknown_tiers_and_recipes_of_several_are_refused() -> None:
    with pytest.raises(RecipeError, match="quality='best' must be one of exact, near, fast"):
        tw.recipe("auto(quality='best')")
    with pytest.raises(RecipeError, match="several recipes"):
        quality_of(tw.recipe("auto"))
    with pytest.raises(RecipeError):
        choices_of("Near")  # type: ignore[arg-type]


def test_what_is_near_has_a_committed_row_within_a_deviation_of_bfloat16() -> None:
    rows = [
        row
        for path in RESULTS.glob("converge-*.json")
        for row in json.loads(path.read_text())["rows"]
        if "final_gap" in row
    ]
    for name in NEAR:
        own = [row for row in rows if row["recipe"] == ("torch-bf16" if name == "bf16" else name)]
        assert own, f"no row for {name}"
        assert all(row["final_gap"] <= row["gap_allowed"] for row in own), name
