"""The final table's words and numbers, the same on the terminal and on the page."""

from thinwire.demo.results import Summary

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
    return all(summary.accuracy is not None for summary in summaries.values())


def _row(summary: Summary, dense: Summary | None, by_accuracy: bool) -> Cells:
    value = summary.accuracy if by_accuracy else summary.loss
    reference = None if dense is None else dense.accuracy if by_accuracy else dense.loss
    form = "{:.1%}" if by_accuracy else "{:.3f}"
    difference = ""
    if value is not None and reference is not None and summary is not dense:
        gap = round(value - reference, 3) + 0.0  # no negative zero
        difference = f"{100 * gap:+.1f} pts" if by_accuracy else f"{gap:+.3f}"
    fewer = None if dense is None else summary.times_fewer_bytes(dense)
    return (
        summary.recipe,
        "diverged" if value is None else form.format(value),
        difference,
        f"{summary.bytes_a_step / 1000:,.1f}",
        f"{fewer:.1f}×" if fewer else "",
        f"{1000 * summary.step_seconds:.1f}",
    )
