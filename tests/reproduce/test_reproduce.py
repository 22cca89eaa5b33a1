"""Experiments are measured once, judged from their rows, and shown as they were judged.

Covers cli/reproduce.py, report/papers.py, report/figures/papers.py and workloads/ratings.py.
"""

import re
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("typer")
pytest.importorskip("matplotlib")

from support.command_line import call
from thinwire.errors import ThinwireError
from thinwire.report.papers import IN_PART, NO, NOTHING, UNTESTED, YES, overall, paper_section
from thinwire.reproduce.experiment import (
    Curve,
    Experiment,
    Finding,
    Panel,
    Paper,
    Untested,
    judged,
    others,
    run,
    verdict,
)
from thinwire.reproduce.measures import Measures, on_sockets
from thinwire.reproduce.papers import PAPERS
from thinwire.results.file import ResultFile
from thinwire.results.rows import read
from thinwire.workloads.lessons import LESSONS
from thinwire.workloads.ratings import NeuralFilter, Ratings

RESULTS = Path(__file__).parents[2] / "docs" / "results"
WITHOUT_PROCESSES = {
    "gtopk": "fig10,tableVII",
    "ok-topk": "fig4,fig8,fig12",
    "dragonn": "fig3,fig5,fig8",
    "deepreduce": "fig1,fig10,fig11",
    "s2": "theorems1and2,fig7",
}


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's counters are Linux's")
def test_the_cost_model_is_right_of_a_run_if_it_is_told_what_the_run_did() -> None:
    """Also while residuals grow, and Ok-Topk evaluates in most of the steps."""
    names = ["topk(0.01)", "topk-dsa(0.01)", "gaussiank(0.01)", "ok-topk(0.01)"]
    rows = Measures().sync(names, 800_000, [2])  # no region near 2^16, where indices change
    evaluated = [row["series"].get("threshold_evaluated") for row in rows]
    assert evaluated[-1] and evaluated[-1] > 0.3
    for row in rows[1:]:
        computed = on_sockets(row["recipe"], row)
        assert computed == pytest.approx(row["socket_bytes_per_rank"], rel=0.05), row["recipe"]


CONTENTS = {  # how many figures and tables each paper has, and the papers' own way to number these
    "gtopk": (12, ("I", "II", "III", "IV", "V", "VI", "VII")),
    "ok-topk": (13, ("1", "2")),
    "dragonn": (10, ("1", "2")),
    "deepreduce": (15, ("1", "2", "3")),
    "s2": (7, ("1", "2")),
}


def covered(items: set[str], kind: str, numbers: tuple[str, ...]) -> set[str]:
    """Which numbers of a kind the items name: "figures 2 to 5, 12 to 14", "tables 1 and 3"."""
    found: set[str] = set()
    for item in items:
        word, _, rest = item.partition(" ")
        for span in re.split(r", | and ", rest) if word.removesuffix("s") == kind else ():
            first, _, last = span.partition(" to ")
            found.update(numbers[numbers.index(first) : numbers.index(last or first) + 1])
    return found


@pytest.mark.parametrize("name", PAPERS)
def test_every_figure_and_table_of_a_paper_has_a_verdict(name: str) -> None:
    rows = [row for row in read([RESULTS / f"paper-{name}.json"]).rows if "verdict" in row]
    assert {row["verdict"] for row in rows} <= {YES, IN_PART, NO, UNTESTED, NOTHING}
    figures, tables = CONTENTS[name]
    drawn = tuple(str(number) for number in range(1, figures + 1))
    items = {row["item"] for row in rows}
    assert covered(items, "figure", drawn) == set(drawn)
    assert covered(items, "table", tables) == set(tables)


def toy(limit: float = 2.0) -> Paper:
    def measure(measures: Measures) -> list[Panel]:
        theirs = Curve("a", [1, 2], [1.0, 2.0], "the paper")
        return [Panel("time", "workers", "s", [Curve("a", [1, 2], [1.0, 1.5]), theirs])]

    def judge(panels: dict[str, Panel]) -> list[Finding]:
        ours = panels["time"].curve("a").last
        return [Finding("it is fast", "2 s", f"{ours} s", verdict([ours < limit]))]

    experiment = Experiment("figure 3", "speed", "Here.", measure, judge)
    return Paper("toy", [experiment], [Untested("table 1", "settings", "a list", NOTHING)])


def measured(path: Path | None = None) -> ResultFile:
    results = ResultFile(path)
    assert run(toy(), ["Fig3"], results, Measures()) == []
    return results


def test_rows_hold_the_numbers_and_what_they_say() -> None:
    numbers, found, untested = measured().rows
    assert numbers["curves"][0] == {"series": "a", "source": "here", "x": [1, 2], "y": [1.0, 1.5]}
    assert (found["item"], found["ours"], found["verdict"]) == ("figure 3", "1.5 s", YES)
    assert (untested["item"], untested["verdict"]) == ("table 1", NOTHING)


def test_numbers_are_judged_anew_without_being_measured_anew() -> None:
    rows = measured().rows
    again = judged(toy(limit=1.0), rows)
    assert again[0] == rows[0]
    assert [row["verdict"] for row in again[1:]] == [NO, NOTHING]


def test_what_was_not_asked_for_stays() -> None:
    other = {"item": "figure 9", "curves": []}
    assert others(toy(), ["fig3"], [*measured().rows, other]) == [other]
    with pytest.raises(ThinwireError, match="it has fig3"):
        toy().named(["fig4"])


def test_a_section_shows_statements_and_numbers() -> None:
    text = paper_section(measured().rows, "toy", {"command": "thinwire", "commit": "abc"})
    assert "### Figure 3: speed" in text
    assert "| table 1 | settings | a list | nothing to test |" in text
    assert "| it is fast | 2 s | 1.5 s | **holds** |" in text
    assert "| workers | a | a, the paper |\n|---|---|---|\n| 1 | 1 s | 1 s |" in text


def test_a_section_says_first_what_does_not_hold() -> None:
    rows = measured().rows
    assert NO not in paper_section(rows, "toy", {})
    rows[0]["took_seconds"] = 125.0
    text = paper_section(judged(toy(limit=1.0), rows), "toy", {})
    assert "in 2 min 5 s" in text.split("\n")[0]
    first = text.index("**Does not hold here:** it is fast (figure 3).")
    assert first < text.index("### Figure 3: speed")


@pytest.mark.parametrize(
    ("each", "together"),
    [
        ([YES, YES], YES),
        ([YES, NO], IN_PART),
        ([YES, UNTESTED], YES),
        ([UNTESTED], UNTESTED),
        ([IN_PART, NO], IN_PART),
    ],
)
def test_verdicts_together(each: list[str], together: str) -> None:
    assert overall(each) == together


@pytest.mark.parametrize("name", PAPERS)
def test_experiments_that_need_no_processes(name: str, tmp_path: Path) -> None:
    file, page = tmp_path / "paper.json", tmp_path / "page.md"
    page.write_text("<!-- table: paper paper.json all -->\n<!-- end of table -->\n")
    items = WITHOUT_PROCESSES[name]
    drawn = ["--png", str(tmp_path / "paper.png")] if name == "gtopk" else []
    call("reproduce", name, "--only", items, "--quick", "--json", str(file), "--page", str(page),
         *drawn)  # fmt: skip
    wanted = {experiment.item for experiment in PAPERS[name].named(items.split(","))}
    assert {row["item"] for row in read([file]).rows if "curves" in row} == wanted
    assert page.read_text().count("### ") == len(wanted)
    assert (tmp_path / "paper.png").exists() == bool(drawn)


@pytest.mark.parametrize("name", PAPERS)
def test_the_files_say_what_their_numbers_say(name: str) -> None:
    """Or judge them anew: thinwire reproduce NAME --judge --json docs/results/paper-NAME.json"""
    file = RESULTS / f"paper-{name}.json"
    rows = [{k: v for k, v in row.items() if k != "file"} for row in read([file]).rows]
    assert rows == judged(PAPERS[name], rows)
    measured = {row["item"] for row in rows if "curves" in row}
    assert measured == {experiment.item for experiment in PAPERS[name].experiments}


def test_a_filter_learns_what_users_like() -> None:
    lesson, ratings = LESSONS["ratings"], Ratings()
    data = {name: torch.from_numpy(each) for name, each in ratings.prepare(None).items()}
    users, liked = data["held_out"][:, 0], data["held_out"][:, 1]
    trained = set(map(tuple, data["train"].tolist()))
    assert not trained & set(zip(users.tolist(), liked.tolist(), strict=True))
    inputs, targets = lesson.batch_at(data, seed=0, step=0, rank=0)
    scores = NeuralFilter(ratings.users, ratings.things)(inputs)
    assert scores.shape == (lesson.examples, 1 + ratings.others) and not targets.any()


def test_a_paper_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from thinwire.cli.app import main

    monkeypatch.setattr(sys, "argv", ["thinwire", "reproduce", "no-such"])
    with pytest.raises(SystemExit):
        main()
