"""Figures: which there are, and what a page may do with them.

Covers report/charts/svg.py.
"""

from collections import Counter

import pytest

pytest.importorskip("matplotlib")

from support import samples
from thinwire.report.charts.drawing import Axis, Plot
from thinwire.report.charts.palette import DARK, LIGHT
from thinwire.report.charts.svg import inline_svg
from thinwire.report.figures import draw
from thinwire.report.figures.train import split_runs
from thinwire.report.kinds import by_kind
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
        "time-per-step": 2,
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


def test_runs_of_one_recipe_are_lines_of_their_own() -> None:
    rows = [{"file": file, "step": step} for file in "ab" for step in (1, 2, 1, 2)]
    assert [len(run) for run in split_runs(rows)] == [2, 2, 2, 2]


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


def test_step_times_are_drawn_over_the_rates_with_what_matters_in_colour() -> None:
    ((_, figures),) = draw(by_kind(read([samples.STEPS]).rows)).items()
    assert [plot.name for plot in figures] == ["01-step-time", "02-step-time"]
    assert "gpt2-tiny" in figures[0].title and "resnet50-tiny" in figures[1].title
    lines = {line.get_gid().split(":")[2]: line for line in figures[0].figure.axes[0].get_lines()}
    names = ["torch-dense", "torch-powersgd-1", "topk 0.05 regional+bf16", "union", "auto"]
    assert set(lines) == {*names, "compute alone"}
    grey = {name for name, line in lines.items() if line.get_linewidth() < 1}
    assert grey == {"topk 0.05 regional+bf16"}  # neither the fastest of ours nor compared with
    level = {y for _, y in lines["compute alone"].get_xydata()}
    assert len(level) == 1


def test_a_recorded_step_is_drawn_as_a_timeline() -> None:
    ((kind, figures),) = draw(by_kind(read([samples.TIMELINE]).rows)).items()
    assert kind.name == "timeline" and len(figures) == 3  # compute alone, dense, topk
    axes = figures[-1].figure.axes[0]
    assert len(axes.get_yticklabels()) >= 2  # the pass's thread and ours
    words = {text.get_text() for text in figures[-1].figure.legends[0].get_texts()}
    assert {"forward", "backward", "select", "exchange", "decode", "optimizer"} <= words
