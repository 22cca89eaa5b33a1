"""Figures: which there are, what they show, and that the PNG files are drawn upon.

Covers report/charts/bars.py, report/charts/drawing.py, report/charts/lines.py,
report/charts/palette.py, report/charts/svg.py, report/kinds.py, report/panels.py.
"""

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from support import samples
from thinwire.format import duration, setting, short
from thinwire.report.charts.bars import Bar, bar_chart
from thinwire.report.charts.drawing import Axis, Plot
from thinwire.report.charts.lines import Line, line_chart
from thinwire.report.charts.palette import DARK, LIGHT, looks
from thinwire.report.charts.svg import inline_svg
from thinwire.report.figures import draw
from thinwire.report.figures.train import runs
from thinwire.report.kinds import by_kind
from thinwire.report.panels import panels
from thinwire.results.rows import read

STEP, LOSS = Axis("step"), Axis("loss")


@pytest.fixture(scope="module")
def plots(tmp_path_factory: pytest.TempPathFactory) -> list[Plot]:
    rows = read(samples.write(tmp_path_factory.mktemp("results"))).rows
    return [plot for members in draw(by_kind(rows)).values() for plot in members]


def svg(plot: Plot) -> str:
    return inline_svg(plot.figure, plot.name, plot.title)


def test_the_rows_fill_these_figures_and_no_others(plots: list[Plot]) -> None:
    assert Counter(plot.name[3:] for plot in plots) == {
        "sync-phases": 5,  # 8 workers at two rates; 4, 8 and 16 over loopback
        "sync-time": 1,
        "sync-volume": 1,
        "loss-against-steps": 2,
        "loss-against-time": 2,
        "loss-against-bytes": 2,
        "time-a-step": 2,
        "simulate-time": 1,
        "simulate-volume": 1,
        "kernel-time": 2,
        "kernel-ratio": 1,
        "codec-bits": 2,
        "codec-encode": 2,
        "codec-decode": 2,
    }
    assert len({plot.name for plot in plots}) == len(plots)


def test_a_page_decides_on_all_colours_and_fonts(plots: list[Plot]) -> None:
    for text in map(svg, plots):
        assert "#" not in text.replace("url(#", "").replace('href="#', "")
        assert "font-family" not in text and "xmlns" not in text and "<style" not in text
    assert LIGHT.keys() == DARK.keys()


def test_ids_are_of_one_figure_only(plots: list[Plot]) -> None:
    ids = [part.split('"')[0] for plot in plots for part in svg(plot).split(' id="')[1:]]
    assert ids and len(set(ids)) == len(ids)


def test_dense_has_a_place_in_the_panels_of_every_density() -> None:
    rows = [{"recipe": "dense", "n": 1, "density": None}]
    rows += [{"recipe": "topk", "n": 1, "density": density} for density in (0.1, 0.01)]
    found = panels(rows, ("n", "density"))
    assert [[row["recipe"] for row in panel.rows] for panel in found] == [["dense", "topk"]] * 2
    assert [panel.title("Time") for panel in found] == [
        "Time, 1 elements, density 0.1",
        "Time, 1 elements, density 0.01",
    ]
    assert len(panels(rows[:1], ("n", "density"))) == 1


def test_runs_of_one_recipe_are_lines_of_their_own() -> None:
    rows = [{"file": file, "step": step} for file in "ab" for step in (1, 2, 1, 2)]
    assert [len(run) for run in runs(rows)] == [2, 2, 2, 2]


def test_seeds_are_lines_of_one_figure_beside_rows_that_have_none() -> None:
    rows = read([samples.RECORDED / "train-tasks.json"]).rows
    old = [{field: row[field] for field in row if field != "seed"} for row in rows]
    seeded = [row | {"seed": seed} for seed in (1, 2) for row in old]
    (kind,) = by_kind(rows)
    before, after = (draw(by_kind(rows))[kind] for rows in (old, old + seeded))
    assert [plot.name for plot in after] == [plot.name for plot in before]

    def lines(plots: list[Plot]) -> int:
        return sum(svg(plot).count('class="line"') for plot in plots)

    assert lines(after) == 3 * lines(before) > 0


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
    assert not list(bar_chart("T", "t", STEP, {"x": "ink"}, [Bar("a", "a", {}, "")]))


def test_one_point_and_equal_values_still_draw() -> None:
    for log in (False, True):
        axis = Axis("x", log=log)
        (plot,) = line_chart("T", "t", axis, axis, [Line("a", looks(["a"])["a"], [(3.0, 2.0)])])
        assert 'data-recipe="a"' in svg(plot)


def test_a_bar_beyond_the_limit_does_not_flatten_the_others() -> None:
    bars = [Bar("long", "long", {"x": 100.0}, "100 s"), Bar("b", "b", {"x": 1.0}, "1 s")]
    (plot,) = bar_chart("T", "t", Axis("x"), {"x": "ink"}, bars, limit=1.5)
    assert 1.5 <= plot.figure.axes[0].get_xlim()[1] < 3


def test_looks_differ_and_a_baseline_stands_out() -> None:
    look = looks([f"recipe{i}" for i in range(35)] + ["dense", "torch-dense"])
    assert len({(each.colour, each.dash) for each in look.values()}) == 37
    assert look["dense"].width > look["recipe0"].width
    assert looks(["dense"])["dense"].dash == ()


def test_words() -> None:
    assert [short(v) for v in (0.5, 1500, 2e6, 3e9)] == ["0.5", "1.5k", "2M", "3G"]
    assert [duration(v) for v in (0, 2.5e-7, 2.5e-4, 0.001, 1.5)] == [
        "0",
        "250 ns",
        "250 µs",
        "1 ms",
        "1.5 s",
    ]
    assert setting("rate", None) == "loopback" and setting("rate", 1000.0) == "1 Gbit/s"
    assert setting("compute_seconds", 0.0) == "" and setting("overlap", False) == "not overlapped"
    assert setting("density", None) == "" and setting("workers", 1) == "1 worker"


def test_a_long_title_stays_inside(tmp_path: Path) -> None:
    title = "Loss against bytes, " + ", ".join(["a setting in words"] * 6)
    (plot,) = bar_chart(title, "t", Axis("x"), {"x": "ink"}, [Bar("a", "a" * 60, {"x": 1.0}, "1")])
    figure = plot.figure
    figure.savefig(tmp_path / "drawn.png")
    boxes = [text.get_window_extent() for text in figure.texts]
    assert len(boxes) > 2 and all(box.x1 <= figure.bbox.x1 for box in boxes)
