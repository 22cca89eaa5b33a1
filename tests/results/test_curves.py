"""Curves: the best learning rate, when a target is reached, and what a step takes at a rate."""

import math
from typing import Any

import pytest

from thinwire.results.curves import (
    RealTime,
    StepTime,
    best_rate,
    crossing,
    curves,
    label,
    step_time,
)

SETTING = {
    "model": "m", "optimizer": "adamw", "workers": 4, "device": "cpu", "recipe": "topk",
    "density": 0.01, "rate": None, "error": None, "examples": 8,
}  # fmt: skip


def run(
    losses: list[float | None], seed: int = 0, lr: float = 0.1, **changed: Any
) -> dict[str, Any]:
    points = {
        "step": [10 * place for place in range(len(losses))],
        "held_out_loss": losses,
        "train_loss": [None] * len(losses),
        "seconds": [1.0 * place for place in range(len(losses))],
        "bytes": [100 * place for place in range(len(losses))],
    }
    about = SETTING | {"seed": seed, "learning_rate": lr, "points": points}
    return about | {"final_loss": losses[-1]} | changed


def test_a_recipe_is_told_by_its_words_and_its_density() -> None:
    assert label({"recipe": "union(0.01, dtype='bf16')", "density": None}) == (
        "union(0.01,dtype='bf16')"
    )
    assert label({"recipe": "topk", "density": 0.001}) == "topk(0.001)"


def test_the_first_seed_chooses_the_learning_rate_and_one_that_diverged_is_none() -> None:
    tried = [run([5.0, 3.0], lr=0.1), run([5.0, 2.0], lr=0.3), run([5.0, None], lr=1.0)]
    assert best_rate([*tried, run([5.0, 1.0], seed=1, lr=0.1)]) == 0.3


def test_a_curve_is_of_the_best_rate_with_its_mean_and_deviation_over_the_seeds() -> None:
    rows = [run([5.0, 3.0], lr=0.1), *(run([5.0, 2.0 + seed], seed, 0.3) for seed in (1, 0))]
    failed = run([5.0, 0.0], 2, 0.3, error="no")
    elsewhere = run([5.0, 0.0], 3, 0.3, rate=100.0)
    ((by_name),) = curves([*rows, failed, elsewhere], 100.0).values()
    curve = by_name["topk(0.01)"]
    assert [r["seed"] for r in curve.runs] == [0, 1] and curve.steps == [0, 10]
    assert curve.means == [5.0, 2.5] and curve.deviations == [0.0, pytest.approx(0.5**0.5)]
    assert curve.sent == [0.0, 100.0]


def test_auto_has_a_curve_for_each_rate_with_its_own_seconds() -> None:
    rows = [run([5.0, 3.0, at / 100], recipe="auto", density=None, rate=at) for at in (100.0, 50.0)]
    ((by_name),) = curves(rows, 50.0).values()
    curve = by_name["auto"]
    assert curve.means == [5.0, 3.0, 0.5] and curve.seconds == [0.0, 1.0, 2.0]
    time = RealTime(curve)
    assert (time.seconds, time.sent) == (0.1, 10.0) and time.elapsed(15, None) == 1.5
    assert time.elapsed(20, None) == 2.0 and curves(rows, 10.0) == {}


def test_a_seed_that_diverged_makes_the_mean_unknown() -> None:
    ((by_name),) = curves([run([5.0, 3.0, 2.0]), run([5.0, None], seed=1)], None).values()
    curve = by_name["topk(0.01)"]
    assert curve.steps == [0, 10] and math.isnan(curve.means[-1])
    assert math.isnan(curve.deviations[-1])


def test_a_target_is_reached_between_two_looks_or_never() -> None:
    steps, losses = [0, 10, 20], [5.0, 3.0, 2.0]
    assert crossing(steps, losses, 4.0) == 5.0 and crossing(steps, losses, 2.0) == 20.0
    assert crossing(steps, losses, 1.9) is None and crossing(steps, losses, 6.0) == 0.0
    assert crossing(steps, [5.0, math.nan, 2.0], 3.0) == 20.0


def test_more_bytes_than_the_timed_steps_sent_take_their_time_on_the_link() -> None:
    at = StepTime(0.5, 1_000_000, 8.0, "measured")  # a second for a step's bytes
    assert at.elapsed(10, 10_000_000) == 5.0 and at.elapsed(10, 12_000_000) == 7.0
    assert at.elapsed(10, 9_000_000) == 5.0 and at.elapsed(10, None) == 5.0


def timed(rate: float | None, seconds: float | None, **changed: Any) -> dict[str, Any]:
    return SETTING | {"rate": rate, "step_seconds": seconds, "bytes_per_step": 1e6} | changed


def test_a_slower_rate_is_computed_from_the_next_faster_one() -> None:
    times = [timed(8000.0, 0.1), timed(80.0, 0.2), timed(8.0, None), timed(800.0, 9.0, model="x")]
    measured = step_time(times, SETTING, 80.0)
    assert measured is not None and (measured.seconds, measured.source) == (0.2, "measured")
    computed = step_time(times, SETTING, 8.0)
    assert computed is not None and computed.seconds == pytest.approx(0.2 + 1.0 - 0.1)
    assert computed.source == "computed from 80 Mbit/s"
    assert step_time(times, SETTING, 10_000.0) is None and step_time(times, SETTING, None) is None
    for other in ({"density": 0.02}, {"examples": 16}):
        assert step_time(times, SETTING | other, 80.0) is None
