"""The demo's plan: a few recipes, or all, each trained once from end to end over slow links."""

import pytest

import thinwire as tw
from thinwire.auto.quality import NEAR
from thinwire.bench.peers import BASELINE
from thinwire.demo.plan import SCENES, Settings, examples, plan
from thinwire.errors import RecipeError


def test_a_newcomer_sees_a_few_and_dense_comes_first() -> None:
    cases = plan(Settings())
    shown = [BASELINE, "torch-bf16", "torch-powersgd-4", "int4", "powersgd", "topk"]
    assert [case.recipe for case in cases] == shown
    assert {(case.rate, case.what, case.learning_rate) for case in cases} == {
        ("100mbit", "verify", 1e-2)
    }
    assert examples(Settings(workers=2)) == 256


def test_on_a_card_the_low_rank_is_the_one_that_keeps_the_loss() -> None:
    kept = [tw.recipe(name) for name in NEAR]
    assert tw.recipe(SCENES["cuda"].low_rank) in kept
    assert SCENES["cuda"].low_rank in Settings(device="cuda").names()


def test_recipes_can_be_named_and_all_are_each_once() -> None:
    assert Settings(recipes=("topk", "topk")).names() == [BASELINE, "topk"]
    names = Settings(everything=True).names()
    assert set(names) >= {*tw.recipes()} - {"auto", "dense"}  # the baseline is dense
    assert "torch-powersgd-32" in names and not {"auto", "dense"} & set(names)


def test_only_recipes_by_name_get_the_density() -> None:
    by_name = {case.recipe: case.density for case in plan(Settings(recipes=("topk", "topk(0.1)")))}
    assert by_name == {BASELINE: None, "topk": 0.01, "topk(0.1)": None}


def test_what_cannot_be_run_is_refused_before_anything_starts() -> None:
    with pytest.raises(RecipeError, match="unknown recipe 'topq'"):
        plan(Settings(recipes=("topq",)))


def test_steps_and_seed_reach_the_runs() -> None:
    learning = Settings(steps=7, seed=3).learning()
    assert learning.steps_of("embedding-small") == 7 and learning.every == 1
    assert [case.seed for case in plan(Settings(seed=3))] == [3] * 6
