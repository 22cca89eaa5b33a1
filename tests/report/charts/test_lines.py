"""Lines: what breaks them, and what they carry into the page."""

import pytest

pytest.importorskip("matplotlib")

from thinwire.report.charts.drawing import Axis, Plot
from thinwire.report.charts.lines import Line, line_chart
from thinwire.report.charts.palette import looks
from thinwire.report.charts.svg import inline_svg

STEP, LOSS = Axis("step"), Axis("loss")


def svg(plot: Plot) -> str:
    return inline_svg(plot.figure, plot.name, plot.title)


def test_names_are_escaped_and_lines_carry_them() -> None:
    look = looks(["a<b>"])
    (plot,) = line_chart("T", "t", STEP, LOSS, [Line("a<b>", look["a<b>"], [(1, 2), (2, 3)])])
    assert 'class="line" data-recipe="a&lt;b&gt;"' in svg(plot) and "a<b>" not in svg(plot)


def test_a_gap_breaks_a_line_and_nothing_to_draw_is_no_figure() -> None:
    look, nan = looks(["a"])["a"], float("nan")
    gap = Line("a", look, [(1, 1), (2, 1), (3, nan), (4, 1), (5, 1)])
    (plot,) = line_chart("T", "t", STEP, LOSS, [gap])
    drawn = svg(plot).split('class="line"')[1].split(' d="')[1].split('"')[0]
    assert drawn.count("M") == 2
    assert not list(line_chart("T", "t", STEP, LOSS, [Line("a", look, [(1, nan)])]))
    assert not list(line_chart("T", "t", Axis("n", log=True), LOSS, [Line("a", look, [(0, 1)])]))


def test_one_point_and_equal_values_still_draw() -> None:
    for log in (False, True):
        axis = Axis("x", log=log)
        (plot,) = line_chart("T", "t", axis, axis, [Line("a", looks(["a"])["a"], [(3.0, 2.0)])])
        assert 'data-recipe="a"' in svg(plot)


def test_a_band_lies_around_its_line_and_leaves_out_what_is_not_known() -> None:
    nan = float("nan")
    band = [(0.0, 1.0, 2.0), (1.0, 1.0, 2.0), (2.0, nan, nan), (3.0, 0.5, 1.5)]
    line = Line("a", looks(["a"])["a"], [(at, 1.2) for at, _, _ in band], band)
    for log, first in ((False, 0.0), (True, 1.0)):
        (plot,) = line_chart("T", "t", Axis("x", log=log), LOSS, [line])
        (drawn,) = plot.figure.axes[0].collections
        box = drawn.get_paths()[0].get_extents()
        assert (box.x0, box.x1, box.y0, box.y1) == (first, 3.0, 0.5, 2.0)
        assert svg(plot).count('class="line" data-recipe="a"') == 2
