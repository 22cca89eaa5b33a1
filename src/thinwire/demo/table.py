"""The final table's words and numbers, the same on the terminal and on the page.

Several seeds show as mean ± standard deviation, and their differences from the baseline, taken
seed by seed, as mean ± standard error.
"""

from math import sqrt
from statistics import fmean, stdev

from thinwire.demo.results import BySeed, Summary

Cells = tuple[str, ...]
COSTS = ("KB a step", "fewer bytes", "ms a step")


def headings(summaries: dict[str, Summary]) -> Cells:
    measure = "accuracy" if _has_accuracy(summaries) else "loss"
    return ("recipe", f"held-out {measure}", "against dense", *COSTS)


def rows(summaries: dict[str, Summary], baseline: str) -> list[Cells]:
    """One row a recipe. Without the baseline's run the comparisons stay empty."""
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
        f"{summary.bytes_a_step / 1000:,.1f}",
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
