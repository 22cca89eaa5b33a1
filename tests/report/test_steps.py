"""Whole steps in words: names, rates, and the table that a page shows."""

import re

import pytest

from support.samples import STEPS
from thinwire.report.steps import COMPUTE, rates, short_name, steps_table
from thinwire.results.rows import read

ROWS = read([STEPS]).rows


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        ("auto", "auto"),
        ("union(0.01, dtype='bf16')", "union 0.01 bf16"),
        (
            "ok-topk(0.01, codec='regional+bf16', unit='bucket')",
            "ok-topk 0.01 regional+bf16 bucket",
        ),
        ("topk(0.01)", "topk 0.01"),
        ("powersgd(0.125,'bf16')", "powersgd 0.125 bf16"),
        ("int4(rotate=True)", "int4 rotate"),
        ("sparseloco@10/0.7/0.6", "sparseloco@10/0.7/0.6"),
        ("chunk-topk(0.02)@5(hold=0.5, moments=mean)", "chunk-topk 0.02@5 hold=0.5 moments=mean"),
    ],
)
def test_a_name_is_short(recipe: str, name: str) -> None:
    assert short_name(recipe) == name


def test_rates_go_up_and_unshaped_links_have_none() -> None:
    assert rates([*ROWS, {"rate": None}]) == [20.0, 100.0]


def test_the_table_has_a_line_for_each_recipe_and_a_column_for_each_rate() -> None:
    text = steps_table(ROWS, "gpt2-tiny", {"gpu": "GPU X"})
    caption, _, head, _, *lines = text.splitlines()
    assert "2 ranks on one GPU X" in caption and "8 steps" in caption
    alone = next(row for row in ROWS if row["recipe"] == COMPUTE)
    assert f"compute alone {1000 * alone['step_seconds']:.0f}" in caption
    assert head == "| gpt2-tiny | 20 Mbit/s | 100 Mbit/s | MB per step | MB more memory |"
    names = [line.split("|")[1].strip() for line in lines]
    assert names == ["torch-dense", "torch-powersgd-1", "topk 0.05 regional+bf16", "union", "auto"]
    assert all(re.search(r"\| \d+ \([+-]\d+\) \| \d+ \([+-]\d+\) \|", line) for line in lines)


def test_runs_that_learn_are_no_steps() -> None:
    run = {"model": "gpt2-tiny", "workers": 2, "device": "cpu", "recipe": "topk", "final_loss": 2.0}
    assert steps_table([*ROWS, run], "gpt2-tiny", {}) == steps_table(ROWS, "gpt2-tiny", {})


def test_a_failed_case_and_one_that_was_left_out_are_told_apart() -> None:
    failed = [row | {"step_seconds": None} if row["recipe"] == "union" else row for row in ROWS]
    last = [row for row in failed if row["rate"] != 100.0 or row["recipe"] != "auto"]
    lines = steps_table(last, "gpt2-tiny", {}).splitlines()
    assert "| union | failed | failed |  |  |" in lines
    assert re.fullmatch(r"\| auto \| \d+ \([+-]\d+\) \|  \| .*", lines[-1])
