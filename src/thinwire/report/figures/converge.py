"""Loss over seconds, a figure for each rate, and over bytes; bands reach over the seeds."""

from collections.abc import Iterator, Mapping, Sequence

from thinwire.report.charts.drawing import Axis, Plot
from thinwire.report.charts.lines import Line, line_chart
from thinwire.report.charts.palette import BASELINES, Look
from thinwire.report.converge import REFERENCE, SETTINGS, shown
from thinwire.report.panels import Panel, number, panels
from thinwire.results.file import Row

LOSS = Axis("held-out loss, nats")
SECONDS = Axis("seconds since the start", log=True)
BYTES = Axis("bytes sent per rank so far", log=True)
BASELINE, BACK = Look("ink", (), 2.4), Look("faint", (7, 3))
HIGHEST = 0.6  # of the way from the lowest loss to the first: above it all recipes look alike


def converge_figures(
    rows: Sequence[Row], look: Mapping[str, Look], reference: str = REFERENCE
) -> Iterator[Plot]:
    """The reference stands out, and what does elsewhere steps back."""
    look = dict(look) | dict.fromkeys(BASELINES, BACK) | {reference: BASELINE}
    for panel in panels(rows, (*SETTINGS, "rate")):
        yield from _losses(panel, look, "seconds", SECONDS)
    for panel in panels(rows, SETTINGS):
        first = panel.rows[0]["rate"]  # bytes are the same at every rate
        at_one = Panel(panel.settings, [row for row in panel.rows if row["rate"] == first])
        yield from _losses(at_one, look, "bytes", BYTES)


def _losses(panel: Panel, look: Mapping[str, Look], against: str, x: Axis) -> Iterator[Plot]:
    lines = [
        Line(shown(row), look[row["recipe"]], _points(row, against, "loss"), _band(row, against))
        for row in panel.rows
    ]
    losses = [loss for row in panel.rows for loss in row["points"]["loss"] if loss is not None]
    if not losses:
        return
    low, start = min(losses), max(row["points"]["loss"][0] or 0.0 for row in panel.rows)
    title = panel.title(f"Loss over {against}")
    limit = low + HIGHEST * (start - low)
    yield from line_chart(title, f"loss-over-{against}", x, LOSS, lines, y_limit=limit)


def _points(row: Row, against: str, what: str) -> list[tuple[float, float]]:
    points = row["points"]
    return [(number(x), number(y)) for x, y in zip(points[against], points[what], strict=True)]


def _band(row: Row, against: str) -> list[tuple[float, float, float]]:
    if row["points"]["low"] == row["points"]["high"]:
        return []  # a single seed
    low, high = _points(row, against, "low"), _points(row, against, "high")
    return [(x, below, above) for (x, below), (_, above) in zip(low, high, strict=True)]
