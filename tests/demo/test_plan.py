"""The demo's plan: every recipe on every task, with every seed."""

import pytest

from thinwire.demo.plan import DENSITY, MODELS, Settings, chosen_recipes, plan
from thinwire.errors import RecipeError


def test_the_plan_has_every_recipe_on_every_task_and_dense_first() -> None:
    cases = plan(Settings())
    assert {(case.recipe, case.model) for case in cases} == {
        (recipe, model) for recipe in chosen_recipes(()) for model in MODELS
    }
    assert cases[0].recipe == "dense"
    assert "auto" not in chosen_recipes(())
    assert chosen_recipes(["topk", "topk"]) == ["dense", "topk"]


def test_every_recipe_is_planned_with_every_seed_from_the_first_on() -> None:
    cases = plan(Settings(recipes=("topk",), seed=5, seeds=3))
    assert [(case.recipe, case.model, case.seed) for case in cases] == [
        (recipe, model, seed)
        for recipe in ("dense", "topk")
        for model in MODELS
        for seed in (5, 6, 7)
    ]


def test_the_density_reaches_the_recipes_that_have_one() -> None:
    for density in (DENSITY, 0.2):
        dense, _, topk, _ = plan(Settings(recipes=("topk",), density=density))
        assert dense.arguments == {}
        assert topk.arguments["density"] == density
    with pytest.raises(RecipeError, match=r"density=2"):
        plan(Settings(density=2.0))
