"""Time and bytes by recipe and number of workers: measured (sync) and computed (simulate)."""

from collections.abc import Iterator, Mapping, Sequence

from thinwire.format import duration
from thinwire.report.charts.bars import Bar, bar_chart
from thinwire.report.charts.drawing import Axis, Plot
from thinwire.report.charts.lines import Line, line_chart
from thinwire.report.charts.palette import Look
from thinwire.report.panels import Panel, by_series, number, panels
from thinwire.results.file import Row

WHOLE = "not split"  # what peers take: they have no phases
PHASES = {
    "feedback": "hue-5",
    "select": "hue-0",
    "encode": "hue-6",
    "exchange": "hue-1",
    "decode": "hue-2",
    "other": "rule",
    WHOLE: "faint",
}
WORKERS = Axis("workers", log=True, at_values=True)
SECONDS = Axis("time", duration, log=True)
BYTES = Axis("bytes sent per rank", log=True)


def sync_figures(rows: Sequence[Row], look: Mapping[str, Look]) -> Iterator[Plot]:
    for panel in panels(rows, ("workers", "rate", "n", "density")):
        yield from _phases(panel)
    for panel in panels(rows, ("rate", "n", "density")):
        yield from _curves(panel, look, "sync", "seconds", SECONDS)
        yield from _curves(panel, look, "sync", "bytes_sent_per_rank", BYTES)


def simulate_figures(rows: Sequence[Row], look: Mapping[str, Look]) -> Iterator[Plot]:
    for panel in panels(rows, ("alpha", "beta", "n", "density")):
        yield from _curves(panel, look, "simulate", "seconds", SECONDS)
        yield from _curves(panel, look, "simulate", "bytes_per_rank", BYTES)


def _phases(panel: Panel) -> Iterator[Plot]:
    """Where the time goes. Dense may take thirty times as long: it must not flatten the others."""
    measured = [row for row in panel.rows if row["seconds"] is not None]
    bars = [
        Bar(row["recipe"], row["recipe"], _parts(row), duration(row["seconds"])) for row in measured
    ]
    split = [row["seconds"] for row in measured if row["seconds_by_phase"]]
    yield from bar_chart(
        panel.title(),
        "sync-phases",
        Axis("time by phase", duration),
        PHASES,
        bars,
        limit=1.25 * max(split) if split else None,
    )


def _parts(row: Row) -> dict[str, float]:
    """By phase; a phase without a colour of its own counts as other."""
    parts: dict[str, float] = {}
    for phase, seconds in (row["seconds_by_phase"] or {WHOLE: row["seconds"]}).items():
        name = phase if phase in PHASES else "other"
        parts[name] = parts.get(name, 0.0) + seconds
    return parts


def _curves(
    panel: Panel, look: Mapping[str, Look], kind: str, field: str, y: Axis
) -> Iterator[Plot]:
    """Against workers, where there is more than one number of them."""
    if len({row["workers"] for row in panel.rows}) < 2:
        return
    lines = [
        Line(series, look[series], sorted((row["workers"], number(row[field])) for row in members))
        for series, members in by_series(panel.rows, "recipe").items()
    ]
    what = "Time" if y is SECONDS else "Volume"
    title = panel.title(f"{what} against workers")
    yield from line_chart(title, f"{kind}-{what.lower()}", WORKERS, y, lines)
