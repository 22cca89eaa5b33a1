"""Loss over steps, seconds and bytes: what rows of runs and rows of timed steps say together.

A run is a row with `points`: lists of `step`, `held_out_loss`, `train_loss`, `seconds` and `bytes`,
the last two sums since the start. It was run over unshaped links (`rate` is null), unless it is
there to check the predictions, or `auto` had to see the links that it chooses for.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from thinwire.results.file import Row

SETTING = ("model", "optimizer", "workers", "device")
Setting = tuple[Any, ...]


def label(row: Row) -> str:
    """A recipe as it is written in one word: with its density, without spaces."""
    density = row["density"]
    name: str = row["recipe"].replace(" ", "")
    return name if density is None else f"{name}({density:g})"


def is_adaptive(recipe: str) -> bool:
    """Whether it does something else at another rate, and so has a curve for each."""
    return recipe.partition("(")[0].strip() == "auto"


@dataclass(frozen=True)
class Curve:
    """The runs of a recipe at its best learning rate: one for each seed."""

    runs: list[Row]
    steps: list[int]

    @property
    def first(self) -> Row:
        return self.runs[0]

    @property
    def losses(self) -> list[list[float]]:
        """At each look, of each seed."""
        each = [run["points"]["held_out_loss"] for run in self.runs]
        return [
            [math.nan if loss is None else loss for loss in at]
            for at in zip(*(losses[: len(self.steps)] for losses in each), strict=True)
        ]

    @property
    def means(self) -> list[float]:
        return [fmean(at) for at in self.losses]

    @property
    def deviations(self) -> list[float]:
        """Over the seeds; none of a single one."""
        return [_deviation(at) for at in self.losses]

    @property
    def sent(self) -> list[float] | None:
        """Bytes per rank since the start, the mean over the seeds; None if nobody counted."""
        if any(None in run["points"]["bytes"] for run in self.runs):
            return None
        return self._mean("bytes")

    @property
    def seconds(self) -> list[float]:
        """Since the start, as they were where it ran."""
        return self._mean("seconds")

    def _mean(self, what: str) -> list[float]:
        each = (run["points"][what][: len(self.steps)] for run in self.runs)
        return [fmean(at) for at in zip(*each, strict=True)]


def is_run(row: Row) -> bool:
    return "points" in row and "seed" in row


def curves(rows: Iterable[Row], rate: float | None) -> dict[Setting, dict[str, Curve]]:
    """By setting and recipe, at a rate; without what failed and what was run for a check."""
    runs: dict[Setting, dict[str, list[Row]]] = {}
    for row in rows:
        there = rate if is_run(row) and is_adaptive(row["recipe"]) else None
        if is_run(row) and row["error"] is None and row["rate"] == there:
            setting = tuple(row[field] for field in SETTING)
            runs.setdefault(setting, {}).setdefault(label(row), []).append(row)
    return {
        setting: {name: _curve(members) for name, members in by_name.items()}
        for setting, by_name in runs.items()
    }


def best_rate(runs: Sequence[Row]) -> float:
    """The learning rate that ended lowest, of those that the first seed tried."""
    first = min(run["seed"] for run in runs)
    tried = [run for run in runs if run["seed"] == first]
    best = min(tried, key=lambda run: _or_never(run["final_loss"]))
    rate: float = best["learning_rate"]
    return rate


def _curve(runs: Sequence[Row]) -> Curve:
    rate = best_rate(runs)
    chosen = sorted((r for r in runs if r["learning_rate"] == rate), key=lambda run: run["seed"])
    # One that diverged has fewer points.
    return Curve(chosen, min((run["points"]["step"] for run in chosen), key=len))


def _deviation(losses: Sequence[float]) -> float:
    if not all(map(math.isfinite, losses)):
        return math.nan
    return stdev(losses) if len(losses) > 1 else 0.0


def _or_never(value: float | None) -> float:
    return math.inf if value is None else value


def crossing(steps: Sequence[int], losses: Sequence[float], target: float) -> float | None:
    """When a curve first was at the target, on the line between two looks; None if never."""
    for place, loss in enumerate(losses):
        if loss <= target:
            if place == 0:
                return float(steps[0])
            before = losses[place - 1]
            share = (before - target) / (before - loss) if math.isfinite(before) else 1.0
            return steps[place - 1] + share * (steps[place] - steps[place - 1])
    return None


@dataclass(frozen=True)
class StepTime:
    """What a step takes at a rate, what it sends, and where that is known from."""

    seconds: float
    sent: float | None
    rate: float | None  # Mbit/s
    source: str

    def elapsed(self, step: float, sent: float | None) -> float:
        """Seconds from the start to a step by which so many bytes were sent.

        Steps that sent more than the timed ones, in a density's warm-up or before PowerSGD
        begins, are charged for what is more at the link's rate.
        """
        seconds = step * self.seconds
        if sent is not None and self.sent is not None and self.rate is not None:
            seconds += 8 * max(0.0, sent - step * self.sent) / (self.rate * 1e6)
        return seconds


@dataclass(frozen=True)
class RealTime:
    """What a recipe took that was run at the rate itself, all that it tried there included."""

    curve: Curve
    source: str = "those of the runs"

    @property
    def seconds(self) -> float:
        return self.curve.seconds[-1] / self.curve.steps[-1]

    @property
    def sent(self) -> float | None:
        return None if self.curve.sent is None else self.curve.sent[-1] / self.curve.steps[-1]

    def elapsed(self, step: float, sent: float | None) -> float:
        """Seconds from the start to a step."""
        return between(self.curve.steps, self.curve.seconds, step)


def between(steps: Sequence[int], values: Sequence[float], step: float) -> float:
    """A value on the line between those at two looks."""
    for (early, late), (before, after) in zip(pairwise(steps), pairwise(values), strict=True):
        if early <= step <= late:
            return before + (after - before) * (step - early) / (late - early)
    return values[-1]


def step_time(times: Iterable[Row], curve: Row, rate: float | None) -> StepTime | None:
    """From rows of timed steps; at a rate that none has, from the next faster one.

    There a step takes longer by what its bytes take longer on the link.
    """
    ours = [row for row in times if row["step_seconds"] is not None and _fits(row, curve)]
    for row in ours:
        if row["rate"] == rate:
            return StepTime(row["step_seconds"], row["bytes_per_step"], rate, "measured")
    faster = [r for r in ours if r["rate"] and rate and r["rate"] > rate and r["bytes_per_step"]]
    if not faster or rate is None:
        return None
    row = min(faster, key=lambda row: row["rate"])
    sent = row["bytes_per_step"]
    more = 8 * sent * (1 / rate - 1 / row["rate"]) / 1e6
    return StepTime(row["step_seconds"] + more, sent, rate, f"computed from {row['rate']:g} Mbit/s")


def _fits(timed: Row, run: Row) -> bool:
    return label(timed) == label(run) and all(
        timed[field] == run[field] for field in ("model", "workers", "device", "examples")
    )
