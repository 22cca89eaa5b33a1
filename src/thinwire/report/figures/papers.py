"""Figures of papers: ours in whole lines, the paper's and computed ones in dashes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from thinwire.report.charts.bars import Bar, bar_chart
from thinwire.report.charts.drawing import Axis, Plot
from thinwire.report.charts.lines import Line, line_chart
from thinwire.report.charts.palette import HUES, Look, looks
from thinwire.report.panels import number
from thinwire.report.papers import HERE, in_unit
from thinwire.results.file import Row

WIDE = 8  # times: numbers further apart are drawn on a logarithmic axis
ELSEWHERE = (3.0, 2.0)  # the dashes


def paper_figures(rows: Sequence[Row], look: Mapping[str, Look]) -> Iterator[Plot]:
    """One for each panel: lines over numbers, bars over names."""
    for row in rows:
        title = f"{row['paper']}, {row['item']}: {row['panel']}"
        curves = [curve for curve in row["curves"] if any(y is not None for y in curve["y"])]
        if any(isinstance(x, str) for curve in curves for x in curve["x"]):
            yield from _bars(title, row["unit"], curves)
        else:
            yield from _lines(title, row, curves)


def _lines(title: str, row: Row, curves: Sequence[Row]) -> Iterator[Plot]:
    of_series = looks(curve["series"] for curve in curves)
    drawn = []
    for curve in curves:
        own, name = of_series[curve["series"]], curve["series"]
        if curve["source"] != HERE:
            own, name = replace(own, dash=ELSEWHERE), f"{name}, {curve['source']}"
        points = [(x, number(y)) for x, y in zip(curve["x"], curve["y"], strict=True)]
        drawn.append(Line(name, own, points))
    xs = [x for line in drawn for x, _ in line.points]
    ys = [y for line in drawn for _, y in line.points]
    x = Axis(row["x"], log=_is_wide(xs), at_values=len(set(xs)) <= WIDE)
    unit = row["unit"]
    y = Axis(unit or row["panel"], lambda value: in_unit(value, unit), log=_is_wide(ys))
    yield from line_chart(title, "paper", x, y, drawn)


def _bars(title: str, unit: str, curves: Sequence[Row]) -> Iterator[Plot]:
    """Each curve's bars in its own colour."""
    names = [c["series"] + ("" if c["source"] == HERE else f", {c['source']}") for c in curves]
    colours = {name: HUES[place % len(HUES)] for place, name in enumerate(names)}
    bars = [
        Bar(str(x), str(x), {name: y}, in_unit(y, unit))
        for name, curve in zip(names, curves, strict=True)
        for x, y in zip(curve["x"], curve["y"], strict=True)
        if y is not None
    ]
    axis = Axis(unit or "", lambda value: in_unit(value, unit))
    yield from bar_chart(title, "paper", axis, colours, bars)


def _is_wide(values: Sequence[float]) -> bool:
    known = [value for value in values if value == value]
    return bool(known) and min(known) > 0 and max(known) / min(known) > WIDE
