"""Line charts, linear or logarithmic."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from thinwire.report.charts import drawing
from thinwire.report.charts.drawing import Axis, Plot
from thinwire.report.charts.palette import LIGHT, Look
from thinwire.report.charts.svg import mark_series

Point = tuple[float, float]
FAINT = 0.18  # how much of its colour a band has
FEW = 12  # points that are shown one by one
COLOURED = 7  # lines at most, beside what all are compared with
HEIGHT, LEFT, X_LABEL = 2.35, 0.6, 0.2  # inches


@dataclass(frozen=True)
class Line:
    """Points that are not finite break it. Lines of one series look the same.

    The band around it has its x, its low and its high end at every point.
    """

    series: str
    look: Look
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()


def line_chart(
    title: str, name: str, x: Axis, y: Axis, lines: Sequence[Line], y_limit: float | None = None
) -> Iterator[Plot]:
    """One chart, or none where no point can be drawn. What is above `y_limit` leaves the frame.

    Of many lines those stay in colour that matter, and they come first in the key.
    """
    lines = [line for line in lines if any(_drawable(p, x, y) for p in line.points)]
    if not lines:
        return
    lines = sorted(_few_in_colour(lines, x, y), key=lambda line: bool(line.look.own))
    with matplotlib.rc_context(drawing.STYLE):
        key = {line.series: Line2D([], [], **_style(line.look)) for line in lines}
        own = {line.series: line.look.own for line in lines}
        figure, axes = drawing.frame(title, y.label, HEIGHT, LEFT, key, X_LABEL, own)
        for line in lines:
            kept = [p if _drawable(p, x, y) else (math.nan, math.nan) for p in line.points]
            axes.add_line(_line(line, kept))
            _draw_band(axes, line, x)
        points = [p for line in lines for p in line.points if _drawable(p, x, y)]
        xs, ys = zip(*points, strict=True)
        _scale_x(axes, x, xs)
        _scale_y(axes, y, ys, y_limit)
        axes.set_xlabel(x.label, color=LIGHT["faint"])
        axes.grid(axis="y")
    yield Plot(title, name, figure)


def _few_in_colour(lines: Sequence[Line], x: Axis, y: Axis) -> Sequence[Line]:
    """What all are compared with, and what is lowest where the first line ends."""
    others = [line for line in lines if line.look.colour != "ink"]
    if len({line.series for line in others}) <= COLOURED or any(line.look.own for line in lines):
        return lines
    points = {id(line): [p for p in line.points if _drawable(p, x, y)] for line in others}
    end = min(max(points[id(line)])[0] for line in others)

    def height_at_end(line: Line) -> float:
        return min((height for at, height in points[id(line)] if at <= end), default=math.inf)

    best = dict.fromkeys(line.series for line in sorted(others, key=height_at_end))
    kept = set(list(best)[:COLOURED])
    return [
        line
        if line.series in kept or line.look.colour == "ink"
        else replace(line, look=line.look.in_the_background(), band=())
        for line in lines
    ]


def _drawable(point: Point, x: Axis, y: Axis) -> bool:
    return all(
        math.isfinite(value) and (value > 0 or not axis.log)
        for value, axis in zip(point, (x, y), strict=True)
    )


def _style(look: Look) -> dict[str, Any]:
    dashes = (0, look.dash) if look.dash else "-"
    return {"color": LIGHT[look.colour], "linestyle": dashes, "linewidth": look.width}


def _line(line: Line, points: Sequence[Point]) -> Line2D:
    xs, ys = zip(*points, strict=True)
    marker = "o" if len(points) <= FEW else "none"
    # A baseline, the wider line, lies above what is compared with it.
    drawn = Line2D(
        xs, ys, zorder=2 + line.look.width, marker=marker, markersize=3.5, **_style(line.look)
    )
    mark_series(drawn, "line", line.series, line.look.own)
    return drawn


def _draw_band(axes: Axes, line: Line, x: Axis) -> None:
    within = [at for at in line.band if all(map(math.isfinite, at)) and (at[0] > 0 or not x.log)]
    if within:
        xs, low, high = zip(*within, strict=True)
        colour = LIGHT[line.look.colour]
        band = axes.fill_between(xs, low, high, color=colour, alpha=FAINT, linewidth=0, zorder=1.5)
        mark_series(band, "line", line.series)


def _scale_x(axes: Axes, x: Axis, values: Sequence[float]) -> None:
    low, high = min(values), max(values)
    if x.log:
        axes.set_xscale("log")
        margin = (high / low) ** 0.03 if high > low else 1.5
        axes.set_xlim(low / margin, high * margin)
        axes.xaxis.set_major_locator(LogLocator(subs=(1,) if high / low > 100 else (1, 2, 5)))
    else:
        margin = 0.02 * (high - low) or 1
        axes.set_xlim(low - margin, high + margin)
        axes.xaxis.set_major_locator(drawing.round_ticks(6))
    if x.at_values:
        distinct = sorted(set(values))
        every = math.ceil(len(distinct) / 8)
        axes.xaxis.set_major_locator(FixedLocator(distinct[::every]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(x.formatter)


def _scale_y(axes: Axes, y: Axis, values: Sequence[float], limit: float | None) -> None:
    low, high = min(values), max(values)
    if limit is not None:
        high = max(min(high, limit), low)
    if y.log:
        axes.set_yscale("log")
        low, high = _round_down(low), 1 / _round_down(1 / high)
        axes.set_ylim(low / 1.05, high * 1.05)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low <= 1000 else (1,)))
    else:
        low = 0 if low < 0.2 * high and low >= 0 else low
        margin = 0.04 * (high - low) or 1
        axes.set_ylim(low - margin * (low != 0), high + margin)
        axes.yaxis.set_major_locator(drawing.round_ticks(6))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(y.formatter)


def _round_down(value: float) -> float:
    """To 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return power * max(m for m in (1, 2, 5) if m <= value / power * (1 + 1e-9))
