"""What the runs come to: the final table's words and numbers, on the terminal and on the page.

Several seeds show as mean ± standard deviation, and their differences from the baseline, taken
seed by seed, as mean ± standard error.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from thinwire.results.file import Row

Cells = tuple[str, ...]
COSTS = ("KB per step", "fewer bytes", "ms per step")
BySeed = dict[int | None, float | None]  # None: it diverged, or was not measured


@dataclass(frozen=True)
class Summary:
    """One recipe's finished runs."""

    recipe: str
    model: str
    losses: BySeed
    accuracies: BySeed
    bytes_per_step: float
    step_seconds: float

    def times_fewer_bytes(self, dense: "Summary") -> float | None:
        return dense.bytes_per_step / self.bytes_per_step if self.bytes_per_step else None


def summarise(rows: Iterable[Row]) -> dict[str, dict[str, Summary]]:
    """By model and recipe, in the order of the rows."""
    last: dict[tuple[str, str], dict[int | None, Row]] = {}
    for row in rows:
        last.setdefault((row["model"], row["recipe"]), {})[row.get("seed")] = row
    summaries: dict[str, dict[str, Summary]] = {}
    for (model, recipe), runs in last.items():
        ends = runs.values()
        summaries.setdefault(model, {})[recipe] = Summary(
            recipe=recipe,
            model=model,
            losses={seed: row.get("held_out_loss", row["loss"]) for seed, row in runs.items()},
            accuracies={seed: row.get("accuracy") for seed, row in runs.items()},
            bytes_per_step=fmean(row["bytes_sent_per_rank"] / row["step"] for row in ends),
            step_seconds=fmean(
                row.get("step_seconds", row["seconds"] / row["step"]) for row in ends
            ),
        )
    return summaries


def headings(summaries: dict[str, Summary]) -> Cells:
    measure = "accuracy" if _has_accuracy(summaries) else "loss"
    return ("recipe", f"held-out {measure}", "against dense", *COSTS)


def lines(summaries: dict[str, Summary], baseline: str) -> list[Cells]:
    """One per recipe. Without the baseline's run the comparisons stay empty."""
    dense = summaries.get(baseline)
    return [_row(summary, dense, _has_accuracy(summaries)) for summary in summaries.values()]


def _has_accuracy(summaries: dict[str, Summary]) -> bool:
    return all(None not in summary.accuracies.values() for summary in summaries.values())


def _row(summary: Summary, dense: Summary | None, by_accuracy: bool) -> Cells:
    reached = summary.accuracies if by_accuracy else summary.losses
    gaps: list[float] = []
    if dense is not None and summary is not dense:
        gaps = _gaps(reached, dense.accuracies if by_accuracy else dense.losses)
    fewer = None if dense is None else summary.times_fewer_bytes(dense)
    return (
        summary.recipe,
        _reached(reached, "{:.1%}" if by_accuracy else "{:.3f}"),
        _points(gaps) if by_accuracy else _difference(gaps, 3),
        f"{summary.bytes_per_step / 1000:,.1f}",
        f"{fewer:.1f}×" if fewer else "",
        f"{1000 * summary.step_seconds:.1f}",
    )


def _reached(values: BySeed, form: str) -> str:
    known = [value for value in values.values() if value is not None]
    if not known:
        return "diverged"
    text = form.format(fmean(known))
    if len(known) > 1:
        text += f" ± {form.format(stdev(known))}"
    lost = len(values) - len(known)
    return f"{text}, {lost} of {len(values)} diverged" if lost else text


def _gaps(values: BySeed, references: BySeed) -> list[float]:
    """Seed by seed; none where a run diverged: the rest would flatter the recipe."""
    pairs = [(value, references[seed]) for seed, value in values.items() if seed in references]
    gaps = [a - b for a, b in pairs if a is not None and b is not None]
    return gaps if len(gaps) == len(pairs) else []


def _points(gaps: list[float]) -> str:
    return f"{_difference([100 * gap for gap in gaps], 1)} pts" if gaps else ""


def _difference(gaps: list[float], digits: int) -> str:
    if not gaps:
        return ""
    text = f"{round(fmean(gaps), digits) + 0.0:+.{digits}f}"  # no negative zero
    if len(gaps) > 1:
        text += f" ± {stdev(gaps) / sqrt(len(gaps)):.{digits}f}"
    return text
