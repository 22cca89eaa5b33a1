"""Bars: what is cut, and that all text stays inside. Covers report/charts/drawing.py."""

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from thinwire.report.charts.bars import Bar, bar_chart
from thinwire.report.charts.drawing import Axis


def test_a_bar_beyond_the_limit_does_not_flatten_the_others() -> None:
    bars = [Bar("long", "long", {"x": 100.0}, "100 s"), Bar("b", "b", {"x": 1.0}, "1 s")]
    (plot,) = bar_chart("T", "t", Axis("x"), {"x": "ink"}, bars, limit=1.5)
    assert 1.5 <= plot.figure.axes[0].get_xlim()[1] < 3


def test_a_long_title_stays_inside(tmp_path: Path) -> None:
    title = "Loss against bytes, " + ", ".join(["a setting in words"] * 6)
    (plot,) = bar_chart(title, "t", Axis("x"), {"x": "ink"}, [Bar("a", "a" * 60, {"x": 1.0}, "1")])
    figure = plot.figure
    figure.savefig(tmp_path / "drawn.png")
    boxes = [text.get_window_extent() for text in figure.texts]
    assert len(boxes) > 2 and all(box.x1 <= figure.bbox.x1 for box in boxes)


def test_a_text_without_room_behind_its_bar_stands_inside(tmp_path: Path) -> None:
    bars = [Bar(name, name, {"x": length}, f"{length:g} seconds")
            for name, length in (("a", 1.0), ("b", 1.9), ("c", 100.0))]  # fmt: skip
    (plot,) = bar_chart("T", "t", Axis("x"), {"x": "ink"}, bars, limit=1.2, bound=1.0)
    plot.figure.savefig(tmp_path / "drawn.png")
    boxes = [text.get_window_extent() for text in plot.figure.axes[0].texts]
    assert len(boxes) == 3 and all(box.x1 <= plot.figure.bbox.x1 for box in boxes)


def test_nothing_to_draw_is_no_figure() -> None:
    assert not list(bar_chart("T", "t", Axis("x"), {"x": "ink"}, [Bar("a", "a", {}, "")]))
