"""Kernels beside the time that their bytes alone would take."""

from collections.abc import Iterator, Mapping, Sequence

from thinwire.format import duration, short
from thinwire.report.charts.bars import Bar, bar_chart
from thinwire.report.charts.drawing import Axis, Plot
from thinwire.report.charts.lines import Line, line_chart
from thinwire.report.charts.palette import Look
from thinwire.report.panels import Panel, by_series, number, panels
from thinwire.results.file import Row

FLOOR = Look("ink", (4, 2), 1.4)
SHOWN_RATIO = 10.0  # longer bars are cut: what matters is how near the others come to 1


def kernel_figures(rows: Sequence[Row], look: Mapping[str, Look]) -> Iterator[Plot]:
    for panel in panels(rows, ("op", "payloads", "device", "threads", "density")):
        yield from _times(panel, look)
    yield from kernel_ratios(rows)


def kernel_ratios(rows: Sequence[Row]) -> Iterator[Plot]:
    """Only the ratios to the floor: every operation at its largest n."""
    for panel in panels(rows, ("device", "threads", "density")):
        yield from _ratios(panel)


def _times(panel: Panel, look: Mapping[str, Look]) -> Iterator[Plot]:
    """Against n, with the floor."""
    lines = [
        Line(series, look[series], sorted((row["n"], number(row["seconds"])) for row in members))
        for series, members in by_series(panel.rows, "impl").items()
    ]
    lowest: dict[int, float] = {}
    for row in panel.rows:
        if row["floor_seconds"] is not None:
            lowest[row["n"]] = min(row["floor_seconds"], lowest.get(row["n"], row["floor_seconds"]))
    lines.append(Line("floor", FLOOR, sorted(lowest.items())))
    yield from line_chart(
        panel.title(),
        "kernel-time",
        Axis("elements", log=True),
        Axis("time", duration, log=True),
        lines,
    )


def _ratios(panel: Panel) -> Iterator[Plot]:
    largest: dict[tuple[str, str], Row] = {}
    for row in panel.rows:
        payloads = row.get("payloads")
        key = (row["op"] if payloads is None else f"{row['op']} {payloads}", row["impl"])
        if row["ratio"] is not None and (key not in largest or row["n"] >= largest[key]["n"]):
            largest[key] = row
    bars = [
        Bar(
            impl, f"{op}, {impl}", {"ratio": ratio}, f"{ratio:.2f}" if ratio < 100 else short(ratio)
        )
        for (op, impl), row in sorted(largest.items())
        for ratio in [row["ratio"]]
    ]
    yield from bar_chart(
        panel.title("Ratio to the floor"),
        "kernel-ratio",
        Axis("time over floor, at the largest n"),
        {"ratio": "hue-0"},
        bars,
        limit=SHOWN_RATIO,
        bound=1.0,
    )
