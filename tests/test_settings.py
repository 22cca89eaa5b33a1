"""Checks that all pieces share: what is accepted, what is refused, and with which words."""

import math
import re

import pytest

from thinwire.errors import RecipeError
from thinwire.settings import (
    check_choice,
    check_density,
    check_integer,
    check_range,
    near,
    target_count,
)


@pytest.mark.parametrize("value", [0, 0.5, 1])
def test_both_ends_belong_to_a_range(value: float) -> None:
    check_range("x", value, 0, 1)


@pytest.mark.parametrize(
    ("value", "ends", "interval"),
    [
        (0, {"open_low": True}, "(0, 1]"),
        (1, {"open_high": True}, "[0, 1)"),
        (-0.1, {}, "[0, 1]"),
        (1.1, {}, "[0, 1]"),
        (math.nan, {}, "[0, 1]"),
        (math.inf, {}, "[0, 1]"),
        (True, {}, "[0, 1]"),
    ],
)
def test_what_is_outside_is_refused_by_name(value: object, ends: dict, interval: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(f"x={value} must be in {interval}")):
        check_range("x", value, 0, 1, **ends)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["0.5", None])
def test_what_is_no_number_is_shown_as_it_is(value: object) -> None:
    says = f"x={value!r} must be a number in [0, 1]"
    with pytest.raises(RecipeError, match=re.escape(says)):
        check_range("x", value, 0, 1)  # type: ignore[arg-type]


def test_without_an_upper_end_the_words_have_no_infinity() -> None:
    with pytest.raises(RecipeError, match="x=0 must be above 0"):
        check_range("x", 0, 0, open_low=True)
    with pytest.raises(RecipeError, match="x=-1 must be at least 0"):
        check_range("x", -1, 0)


def test_an_open_upper_end_refuses_infinity() -> None:
    check_range("cap", 1e300, 1, open_high=True)
    with pytest.raises(RecipeError, match="cap=inf"):
        check_range("cap", math.inf, 1, open_high=True)


@pytest.mark.parametrize("value", [1, 8])
def test_integers_from_low_to_high(value: int) -> None:
    check_integer("bits", value, 1, 8)


@pytest.mark.parametrize("value", [0, 9, 2.0, True, "3", None])
def test_other_things_are_no_such_integers(value: object) -> None:
    with pytest.raises(RecipeError, match=r"bits=.* must be an integer in 1 … 8"):
        check_integer("bits", value, 1, 8)  # type: ignore[arg-type]


def test_an_integer_without_an_upper_end() -> None:
    check_integer("steps", 10**12, 1)
    with pytest.raises(RecipeError, match="steps=0 must be an integer of at least 1"):
        check_integer("steps", 0, 1)


def test_a_choice_is_named_beside_those_there_are() -> None:
    check_choice("unit", "model", ("tensor", "model"))
    with pytest.raises(RecipeError, match="unit='layer' must be one of tensor, model"):
        check_choice("unit", "layer", ("tensor", "model"))


@pytest.mark.parametrize(
    ("name", "meant"), [("TopK", "topk"), ("ok_topk", "ok-topk"), ("topkk", "topk"), ("x", None)]
)
def test_a_name_that_may_have_been_meant(name: str, meant: str | None) -> None:
    said = near(name, ["dense", "topk", "ok-topk"])
    assert said == (f" (did you mean {meant!r}?)" if meant else "")


@pytest.mark.parametrize("density", [0, -0.1, 1.01, math.nan, math.inf])
def test_a_density_is_a_share(density: float) -> None:
    check_density(1e-9)
    check_density(1)
    with pytest.raises(RecipeError, match=re.escape(f"density={density} must be in (0, 1]")):
        check_density(density)


@pytest.mark.parametrize(
    ("numel", "density", "scheduled", "k"),
    [
        (1000, 0.01, None, 10),
        (1000, 0.01, 0.5, 500),  # a schedule comes first
        (1000, 1e-9, None, 1),  # never nothing
        (1, 0.01, None, 1),
        (0, 0.01, None, 0),  # of nothing
        (7, 1.0, None, 7),
    ],
)
def test_k(numel: int, density: float, scheduled: float | None, k: int) -> None:
    assert target_count(numel, density, scheduled) == k


def test_a_scheduled_density_is_checked() -> None:
    with pytest.raises(RecipeError, match="density=0"):
        target_count(10, 0.1, 0.0)
