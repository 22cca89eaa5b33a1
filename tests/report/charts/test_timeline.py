"""Timelines: a band for each worker, a colour for each kind of work."""

import pytest

pytest.importorskip("matplotlib")

from thinwire.report.charts.drawing import Axis
from thinwire.report.charts.svg import inline_svg
from thinwire.report.charts.timeline import Band, timeline_chart

COLOURS = {"a": "hue-0", "b": "hue-1", "c": "hue-2"}


def test_every_kind_of_work_has_its_colour_and_only_what_was_done_is_named() -> None:
    bands = [Band("one", [("a", 0.0, 1.0), ("b", 1.0, 3.0)]), Band("two", [("a", 2.0, 4.0)])]
    (plot,) = timeline_chart("T", "t", Axis("time"), COLOURS, bands)
    axes = plot.figure.axes[0]
    assert axes.get_xlim() == (0, 4.0)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]
    assert [text.get_text() for text in plot.figure.legends[0].get_texts()] == ["a", "b"]
    svg = inline_svg(plot.figure, plot.name, plot.title)
    assert svg.count('class="bar" data-recipe="a"') == 2
    assert "var(--hue-1)" in svg and "var(--hue-2)" not in svg


def test_nothing_done_is_no_figure() -> None:
    assert not list(timeline_chart("T", "t", Axis("time"), COLOURS, [Band("one", [])]))
