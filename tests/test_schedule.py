"""Density warm-up: stages of equal length, then the recipe's own density."""

import math
from itertools import pairwise

import pytest

import thinwire as tw


def test_each_stage_lasts_its_steps_and_then_it_is_over() -> None:
    warm_up = tw.WarmUp(steps=3, densities=(0.5, 0.1))
    assert [warm_up.at(step) for step in range(8)] == [0.5] * 3 + [0.1] * 3 + [None] * 2


def test_the_defaults_are_gtopks() -> None:
    warm_up = tw.WarmUp(steps=1)
    assert [warm_up.at(step) for step in range(5)] == [0.25, 0.0725, 0.015, 0.004, None]


@pytest.mark.parametrize("stages", [1, 4, 7])
def test_towards_falls_by_the_same_factor_every_time(stages: int) -> None:
    densities = [1.0, *tw.WarmUp.towards(0.01, steps=100, stages=stages).densities, 0.01]
    factors = [b / a for a, b in pairwise(densities)]
    assert len(factors) == stages + 1
    assert all(math.isclose(factor, factors[0]) for factor in factors)


def test_towards_has_at_least_one_step_per_stage() -> None:
    assert tw.WarmUp.towards(0.1, steps=2, stages=4).steps == 1
    assert tw.WarmUp.towards(0.1, steps=400, stages=4).steps == 100


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"steps": 0}, "steps=0"),
        ({"steps": 5, "densities": (0.5, 0.0)}, "density=0.0"),
        ({"steps": 5, "densities": (1.5,)}, "density=1.5"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict, says: str) -> None:
    with pytest.raises(tw.RecipeError, match=says):
        tw.WarmUp(**settings)


def test_a_pipeline_takes_the_warm_ups_density_and_then_leaves_it_to_its_pieces() -> None:
    pipeline = tw.recipe("topk", density=0.02, warm_up=tw.WarmUp(steps=2, densities=(0.5,)))
    assert [pipeline.density_at(step) for step in range(4)] == [0.5, 0.5, None, None]
