"""Time to a loss in words: the table that a page shows, and the figures."""

from typing import Any

import pytest

from thinwire.report.charts.palette import looks
from thinwire.report.converge import FINAL, converge_table, shown
from thinwire.report.figures.converge import converge_figures


def row(recipe: str, rate: float | None, seconds: float | None, **changed: Any) -> dict[str, Any]:
    steps = None if seconds is None else 10.0 * seconds
    reached = {"loss": 2.0, "steps": steps, "seconds": seconds, "bytes": 1e6, "seeds": 3}
    points = {"step": [0, 50, 100], "seconds": [0.0, 5.0, 10.0], "bytes": [0, 5, 10]}
    points |= {"loss": [5.0, 3.0, 2.0], "low": [5.0, 2.9, 1.9], "high": [5.0, 3.2, 2.1]}
    about = {
        "recipe": recipe, "peer": False, "workers": 4, "nodes": 4, "density": None, "model": "m",
        "optimizer": "adamw", "device": "cpu", "parameters": 1_000_000, "data": "text",
        "rate": rate, "samples_per_step": 32, "learning_rate": 0.1, "learning_rates": [0.1],
        "seeds": 3, "steps": 100, "final_loss": 2.0, "final_deviation": 0.01, "final_gap": 0.0,
        "gap_allowed": 0.01, "seconds_per_step": 0.1, "bytes_per_step": 2e6,
        "seconds_are": "measured", "reached": {"half": reached, FINAL: reached},
        "speedup": {"half": 1.0, FINAL: None if seconds is None else 10.0 / seconds},
        "points": points,
    }  # fmt: skip
    return about | changed


ROWS = [
    row("torch-bf16", 1000.0, 10.0),
    row("topk", 1000.0, None, density=0.01, final_gap=0.3, final_loss=2.3),
    row("torch-bf16", 100.0, 1234.5, seconds_are="computed from 1000 Mbit/s"),
    row("topk", 100.0, None, density=0.01, final_loss=None, final_gap=None, final_deviation=None),
]


def test_a_name_has_its_density() -> None:
    assert shown(ROWS[1]) == "topk 1 %" and shown(ROWS[0]) == "torch-bf16"


def test_recipes_that_differ_in_a_setting_have_lines_of_their_own() -> None:
    names = [shown(row(f"powersgd({rank})", None, 1.0)) for rank in (1, 4)]
    assert names == ["powersgd 1", "powersgd 4"]
    pieces = "topk(0.01) | raw | gtopk | residual"
    assert shown(row(pieces, None, 1.0)) == pieces


def test_the_table_has_a_line_for_each_recipe_and_a_column_for_each_rate() -> None:
    caption, _, head, _, bf16, topk = converge_table(ROWS, "m", {"gpu": "GPU X"}).splitlines()
    assert "4 ranks on one GPU X" in caption and "3 seeds" in caption and "2.000" in caption
    assert head.startswith("| seconds to bf16's loss | 100 Mbit/s | 1 Gbit/s | steps |")
    assert bf16 == (
        "| torch-bf16 | ≈ 1,234 (0.01 ×) | 10 (1.00 ×) | 100 | 2.000 ± 0.010 | +0.000 | 2.00 |"
    )
    assert topk == "| topk 1 % | never | never | never | 2.300 ± 0.010 | +0.300 | 2.00 |"
    assert converge_table(ROWS, "another", {}) == ""


def test_whoever_gets_there_sooner_over_the_slowest_link_comes_first() -> None:
    rows = [
        row("far", 100.0, None, final_gap=0.5),
        row("late", 100.0, 9.0),
        row("late", 1000.0, 1.0),
        row("not-timed", 100.0, None, final_gap=0.0),
        row("early", 100.0, 8.0),
        row("early", 1000.0, 2.0),
        row("torch-bf16", 100.0, 50.0),
    ]
    lines = converge_table(rows, "m", {}).splitlines()[4:]
    names = [line.split(" | ")[0].removeprefix("| ") for line in lines]
    assert names == ["torch-bf16", "early", "late", "not-timed", "far"]


def test_one_that_diverged_has_no_loss() -> None:
    assert "| never | diverged |  |" in converge_table(ROWS[2:], "m", {})


def test_figures_show_the_loss_over_seconds_at_each_rate_and_over_bytes() -> None:
    pytest.importorskip("matplotlib")
    from thinwire.report.charts.svg import inline_svg
    from thinwire.report.figures import draw
    from thinwire.report.kinds import by_kind

    ((kind, plots),) = draw(by_kind(ROWS)).items()
    assert kind.name == "converge"
    names = [plot.name[3:] for plot in plots]
    assert names == ["loss-over-seconds", "loss-over-seconds", "loss-over-bytes"]
    text = inline_svg(plots[0].figure, plots[0].name, plots[0].title)
    assert text.count('class="line" data-recipe="topk 1 %"') == 2  # itself and its band


def test_runs_of_other_lengths_have_figures_and_tables_of_their_own() -> None:
    """What went on for longer ends lower, whatever it sends."""
    rows = [*ROWS[:2], *(long | {"steps": 1500} for long in ROWS[:2])]
    seconds, longer, *of_bytes = converge_figures(rows, looks(["torch-bf16", "topk"]))
    assert "100 steps, 32 examples each" in seconds.title and "1,500 steps" in longer.title
    assert len(of_bytes) == 2
    assert converge_table(rows, "m", {}).count("seconds to bf16's loss") == 2
