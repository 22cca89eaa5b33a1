"""When each recipe was where bf16 ends, by rate: rows made of rows."""

from collections.abc import Sequence
from typing import Any

from thinwire.report.converge import FINAL, REFERENCE
from thinwire.results.curves import (
    SETTING,
    Curve,
    RealTime,
    StepTime,
    between,
    crossing,
    curves,
    is_adaptive,
    is_run,
    step_time,
)
from thinwire.results.file import Row

Time = StepTime | RealTime
ABOUT = ("recipe", "peer", "workers", "nodes", "rate", "density", *SETTING)
EARLIER = {"quarter": 0.25, "half": 0.5}  # of the reference's steps


def targets(reference: Curve) -> dict[str, float]:
    """Losses: two that the reference passes on its way, and its last one plus a deviation."""
    last = reference.steps[-1]
    on_the_way = {
        name: reference.means[_nearest(reference.steps, share * last)]
        for name, share in EARLIER.items()
    }
    return on_the_way | {FINAL: reference.means[-1] + reference.deviations[-1]}


def _nearest(steps: Sequence[int], wanted: float) -> int:
    return min(range(len(steps)), key=lambda place: abs(steps[place] - wanted))


def summary(rows: Sequence[Row], times: Sequence[Row], rates: Sequence[float | None]) -> list[Row]:
    """A row for each recipe and rate, where the reference has a curve."""
    made = []
    for rate in rates:
        for by_name in curves(rows, rate).values():
            if REFERENCE in by_name:
                made += _at_rate(by_name, rows, times, rate)
    return made


def _at_rate(
    by_name: dict[str, Curve], rows: Sequence[Row], times: Sequence[Row], rate: float | None
) -> list[Row]:
    reference = by_name[REFERENCE]
    wanted = targets(reference)
    made = []
    for curve in by_name.values():
        adaptive = is_adaptive(curve.first["recipe"])
        time = RealTime(curve) if adaptive else step_time(times, curve.first, rate)
        row = _setting(curve, rate) | _ends(curve, reference, _tried(curve, rows)) | _timed(time)
        row["reached"] = {name: _reached(curve, loss, time) for name, loss in wanted.items()}
        row["points"] = _points(curve, time)
        made.append(row)
    of_reference = next(row for row in made if row["recipe"] == REFERENCE)
    for row in made:
        row["speedup"] = {
            name: _ratio(of_reference["reached"][name]["seconds"], row["reached"][name]["seconds"])
            for name in wanted
        }
    return made


def _ratio(theirs: float | None, ours: float | None) -> float | None:
    return theirs / ours if theirs is not None and ours else None


def _setting(curve: Curve, rate: float | None) -> Row:
    kept = (*ABOUT, "parameters", "data", "samples_per_step", "learning_rate")
    return {field: curve.first[field] for field in kept} | {"rate": rate}


def _tried(curve: Curve, rows: Sequence[Row]) -> list[float]:
    """The learning rates that the recipe had."""
    first = curve.first
    same = ("recipe", "density", "seed", "rate", *SETTING)
    return [
        row["learning_rate"]
        for row in rows
        if is_run(row) and all(row[field] == first[field] for field in same)
    ]


def _ends(curve: Curve, reference: Curve, tried: list[float]) -> Row:
    return {
        "learning_rates": tried,
        "seeds": len(curve.runs),
        "steps": curve.first["steps"],
        "final_loss": curve.means[-1],
        "final_deviation": curve.deviations[-1],
        "final_gap": curve.means[-1] - reference.means[-1],
        "gap_allowed": reference.deviations[-1],
    }


def _timed(time: Time | None) -> Row:
    if time is None:
        return {"seconds_per_step": None, "bytes_per_step": None, "seconds_are": None}
    return {
        "seconds_per_step": time.seconds,
        "bytes_per_step": time.sent,
        "seconds_are": time.source,
    }


def _reached(curve: Curve, target: float, time: Time | None) -> dict[str, Any]:
    """Of the mean over the seeds; and how many of them got there on their own."""
    step = crossing(curve.steps, curve.means, target)
    sent = None
    if step is not None and curve.sent is not None:
        sent = between(curve.steps, curve.sent, step)
    on_their_own = [
        crossing(curve.steps, losses, target) for losses in zip(*curve.losses, strict=True)
    ]
    return {
        "loss": target,
        "steps": step,
        "seconds": None if step is None or time is None else time.elapsed(step, sent),
        "bytes": sent,
        "seeds": sum(reached is not None for reached in on_their_own),
    }


def _points(curve: Curve, time: Time | None) -> dict[str, list[Any]]:
    """For the figures."""
    sent: list[Any] = curve.sent or [None] * len(curve.steps)
    return {
        "step": curve.steps,
        "seconds": [
            None if time is None else time.elapsed(step, so_far)
            for step, so_far in zip(curve.steps, sent, strict=True)
        ],
        "bytes": sent,
        "loss": curve.means,
        "low": [min(at) for at in curve.losses],
        "high": [max(at) for at in curve.losses],
    }


def verified(rows: Sequence[Row], times: Sequence[Row]) -> list[Row]:
    """What was run for real beside what would have been predicted of it."""
    made = []
    for row in rows:
        for_a_check = is_run(row) and row["rate"] is not None and not is_adaptive(row["recipe"])
        if for_a_check and row["error"] is None:
            time = step_time(times, row, row["rate"])
            step, sent = row["points"]["step"][-1], row["points"]["bytes"][-1]
            real = row["points"]["seconds"][-1]
            predicted = None if time is None else time.elapsed(step, sent)
            made.append(
                {field: row[field] for field in (*ABOUT, "learning_rate", "seed", "final_loss")}
                | {
                    "real_seconds": real,
                    "predicted_seconds": predicted,
                    "real_over_predicted": None if predicted is None else real / predicted,
                }
            )
    return made
