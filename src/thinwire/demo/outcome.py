"""What the runs come to: who was where dense ends, and when; in a sentence and a table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thinwire.bench.peers import BASELINE, PEERS
from thinwire.format import optional
from thinwire.report.converge import shown
from thinwire.report.panels import number
from thinwire.results.curves import between, crossing, is_run
from thinwire.results.file import Row

MOST = 0.98  # of the way that dense came: its last look alone would be a matter of chance
HEADINGS = (
    "recipe",
    "s to the loss",
    "times sooner",
    "loss at the end",
    "ms per step",
    "KB per step",
)


@dataclass(frozen=True, slots=True)
class Finish:
    """One recipe's run."""

    row: Row
    seconds: float | None  # to the target; None: never

    @property
    def name(self) -> str:
        return {BASELINE: "dense"}.get(self.row["recipe"], shown(self.row))

    @property
    def ours(self) -> bool:
        return self.row["recipe"] not in PEERS

    @property
    def steps(self) -> int:
        return int(self.row["points"]["step"][-1])


@dataclass(frozen=True, slots=True)
class Outcome:
    """All runs beside each other; without the baseline's there is no target."""

    target: float | None
    finishes: tuple[Finish, ...]

    @property
    def dense(self) -> Finish | None:
        return next((f for f in self.finishes if f.row["recipe"] == BASELINE), None)

    @property
    def best(self) -> Finish | None:
        """Of ours, the first to the target."""
        there = [f for f in self.finishes if f.ours and f.seconds is not None]
        return min(there, key=lambda finish: finish.seconds or 0.0, default=None)

    @property
    def traced(self) -> list[str]:
        """Whose steps are worth a picture."""
        return [f.row["recipe"] for f in (self.dense, self.best) if f is not None]

    @property
    def gains(self) -> bool:
        """Whether one of ours was at the target before dense."""
        first, dense = (None if f is None else f.seconds for f in (self.best, self.dense))
        return first is not None and dense is not None and first < dense

    def sentence(self) -> str:
        """What it gained."""
        dense, best = self.dense, self.best
        if dense is None or dense.seconds is None or self.target is None:
            return "The run of dense did not end: there is nothing to compare with."
        reached = f"dense reaches {self.target:.2f} after {_short(dense.seconds)} s"
        if best is None or best.seconds is None:
            return f"{reached}; none of thinwire's recipes got there in as many steps."
        gain = f"{dense.seconds / best.seconds:.1f} times sooner" if self.gains else "no sooner"
        return f"{reached}, thinwire's {best.name} after {_short(best.seconds)} s: {gain}."

    @property
    def ranking(self) -> list[Finish]:
        """The first to the target come first, as far as they came."""
        inf = float("inf")
        return sorted(self.finishes, key=lambda f: inf if f.seconds is None else f.seconds)

    def lines(self) -> list[tuple[str, ...]]:
        """For the table, in the order of the ranking."""
        dense = None if self.dense is None else self.dense.seconds
        return [_line(finish, dense) for finish in self.ranking]


def outcome(rows: Iterable[Row]) -> Outcome:
    """Of rows of runs; others are left out."""
    runs = [row for row in rows if is_run(row) and row["error"] is None]
    dense = next((row for row in runs if row["recipe"] == BASELINE), None)
    target = None if dense is None else _target(dense["points"]["held_out_loss"])
    return Outcome(target, tuple(Finish(row, _seconds(row, target)) for row in runs))


def _target(losses: Sequence[float]) -> float:
    return losses[0] + MOST * (losses[-1] - losses[0])


def _seconds(row: Row, target: float | None) -> float | None:
    if target is None:
        return None
    points = row["points"]
    losses = [number(loss) for loss in points["held_out_loss"]]
    step = crossing(points["step"], losses, target)
    return None if step is None else between(points["step"], points["seconds"], step)


def _line(finish: Finish, dense: float | None) -> tuple[str, ...]:
    points, seconds = finish.row["points"], finish.seconds
    times = None if not seconds or dense is None else dense / seconds
    sent = points["bytes"][-1]
    return (
        finish.name,
        "never" if seconds is None else _short(seconds),
        optional(times, ".1f"),
        optional(finish.row["final_loss"], ".3f") or "diverged",
        f"{1000 * points['seconds'][-1] / finish.steps:.1f}",
        optional(None if sent is None else sent / finish.steps / 1000, ",.1f"),
    )


def _short(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"
