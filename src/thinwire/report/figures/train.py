"""Convergence against steps, time and bytes; time per step."""

from collections.abc import Iterator, Mapping, Sequence

from thinwire.format import duration
from thinwire.report.charts.bars import Bar, bar_chart
from thinwire.report.charts.drawing import Axis, Plot
from thinwire.report.charts.lines import Line, line_chart
from thinwire.report.charts.palette import Look
from thinwire.report.panels import Panel, by_series, number, panels
from thinwire.results.file import Row

SETTINGS = ("model", "workers", "rate", "overlap", "compute_seconds", "density")
AGAINST = {
    "step": ("steps", Axis("step")),
    "seconds": ("time", Axis("seconds since the start")),
    "bytes_sent_per_rank": ("bytes", Axis("bytes sent per rank so far", log=True)),
}


def train_figures(rows: Sequence[Row], look: Mapping[str, Look]) -> Iterator[Plot]:
    for panel in panels(rows, SETTINGS):
        for against in AGAINST:
            yield from loss_figure(panel, look, against)
        yield from _step_times(panel)


def loss_figure(panel: Panel, look: Mapping[str, Look], against: str) -> Iterator[Plot]:
    """One line for each run; a missing loss (diverged) breaks it."""
    lines = [
        Line(series, look[series], [(number(row[against]), number(row["loss"])) for row in run])
        for series, members in by_series(panel.rows, "recipe").items()
        for run in split_runs(members)
    ]
    # A recipe that diverges must not flatten the others: nothing is shown far above the start.
    starts = [row["loss"] for row in panel.rows if row["step"] == panel.rows[0]["step"]]
    known = [loss for loss in starts if loss]
    word, x = AGAINST[against]
    yield from line_chart(
        panel.title(f"Loss against {word}"),
        f"loss-against-{word}",
        x,
        Axis("training loss, nats"),
        lines,
        y_limit=1.1 * max(known) if known else None,
    )


def split_runs(rows: Sequence[Row]) -> list[list[Row]]:
    """One recipe's rows, cut where another file or another run begins."""
    runs: list[list[Row]] = []
    for row in rows:
        last = runs[-1][-1] if runs else None
        if last and last.get("file") == row.get("file") and number(last["step"]) < row["step"]:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _step_times(panel: Panel) -> Iterator[Plot]:
    """The median where the run says it, else the mean, of each recipe's last run."""
    bars = []
    for series, members in by_series(panel.rows, "recipe").items():
        row = members[-1]
        if row["step"] and row["seconds"] is not None:
            seconds = row.get("step_seconds") or row["seconds"] / row["step"]
            bars.append(Bar(series, series, {"step": seconds}, duration(seconds)))
    yield from bar_chart(
        panel.title("Time per step"),
        "time-per-step",
        Axis("time", duration),
        {"step": "hue-0"},
        bars,
    )
