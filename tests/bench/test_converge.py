"""`bench converge`: which cases come, what the rows say, failures, going on, and a real run.

Covers cli/bench_converge.py.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.extras import CLI, needs
from thinwire.bench.converge.case import LAST, rate_at
from thinwire.bench.converge.plan import Book, Case, Settings, cases, order, refuse_impossible
from thinwire.bench.converge.run import alike, kept, run
from thinwire.bench.converge.targets import targets
from thinwire.bench.timing import Quiet
from thinwire.errors import ThinwireError
from thinwire.lab import Lab
from thinwire.lab.ranks import CaseError
from thinwire.report.converge import FINAL, REFERENCE
from thinwire.report.kinds import by_kind
from thinwire.report.steps import COMPUTE
from thinwire.results.curves import curves
from thinwire.results.file import ResultFile

SMALL = Settings(
    models=("transformer-tiny",),
    recipes=("topk",),
    workers=2,
    rates=(None,),
    seeds=2,
    learning_rates=(0.1, 0.2),
    steps=40,
)
ENDS = {REFERENCE: 2.0, "topk": 3.0, "union": 2.5}  # losses


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [rate_at(step, 100) for step in range(100)]
    assert rates[0] == 0.1 and max(rates) == 1.0 == rates[9]
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert LAST <= rates[-1] < LAST + 0.01 and rate_at(0, 1) == 1.0


class Answering:
    """Answers at once, without processes. Higher rates and seeds end a little lower."""

    asked: list[dict[str, Any]]

    def __init__(self, lab: Lab, workers: int, target: str) -> None:
        pass

    def run(self, case: dict[str, Any], on_step: Callable[[], None]) -> list[dict[str, Any]]:
        self.asked.append(case)
        common = {"phases": {}, "counted_bytes": None, "decision": None, "cpu_seconds": 0.0}
        if case["recipe"] == "dense":
            raise CaseError("rank 1 failed:\nTraceback\nValueError: no")
        if case["what"] == "time":
            ends = [0.0, 0.5, 1.0]
            steps = {"ends": ends, "every": 1, "warmup": 1, "link_bytes": None, "socket_bytes": 20}
            answer = steps | {"peak_memory": None, "losses": [1.0] * 3, "spans": []} | common
            return [answer] * 2
        end = ENDS[case["recipe"]] - 0.1 * (case["learning_rate"] == 0.2) + 0.2 * case["seed"]
        points: list[dict[str, Any]] = [{"step": 0, "held_out_loss": 6.0}]
        for step in (10, 20, 30, 40):
            loss = 6.0 + (end - 6.0) * step / 40
            points.append(
                {"step": step, "held_out_loss": loss, "seconds": 9.0}
                | {"link_bytes": None, "socket_bytes": 100}
            )
        return [{"points": points, "losses": [loss] * 40} | common] * 2


@pytest.fixture(autouse=True)
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    Answering.asked = []
    monkeypatch.setattr("thinwire.bench.runner.Workers", Answering)


def told(case: dict[str, Any]) -> tuple[Any, ...]:
    return case["what"], case["recipe"], case["learning_rate"], case["seed"]


def test_each_recipe_tries_all_learning_rates_and_goes_on_with_its_best() -> None:
    assert run(SMALL, ResultFile(None), Quiet()) == []
    learned = [told(case) for case in Answering.asked if case["what"] == "learn"]
    assert learned == [
        ("learn", name, lr, seed)
        for name in (REFERENCE, "topk")
        for lr, seed in ((0.1, 0), (0.2, 0), (0.2, 1))
    ]
    timed = [case["recipe"] for case in Answering.asked if case["what"] == "time"]
    assert timed == [COMPUTE, REFERENCE, "topk"]


def test_auto_learns_at_every_rate_and_its_seconds_are_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Lab, "__enter__", lambda lab: lab)
    monkeypatch.setattr("thinwire.bench.converge.plan.refuse_links", lambda *_: None)
    monkeypatch.setitem(ENDS, "auto", 2.0)
    results = ResultFile(None)
    assert (
        run(replace(SMALL, recipes=("auto",), rates=("1gbit", "100mbit")), results, Quiet()) == []
    )
    learned = [(row["rate"], row["learning_rate"]) for row in results.rows if of_auto(row)]
    assert learned == [(at, lr) for at in (1000.0, 100.0) for lr in (0.1, 0.2, 0.2)]
    assert not any("step_seconds" in row for row in results.rows if row["recipe"] == "auto")
    ours = [row for row in results.rows if "reached" in row and row["recipe"] == "auto"]
    assert [row["rate"] for row in ours] == [1000.0, 100.0]
    assert ours[0]["reached"]["half"]["seconds"] == pytest.approx(18.0)  # 9 for 10 steps
    assert ours[0]["seconds_per_step"] == 0.9 and ours[0]["seconds_are"] != "measured"
    assert not any("predicted_seconds" in row for row in results.rows)


def of_auto(row: dict[str, Any]) -> bool:
    return row["recipe"] == "auto" and "seed" in row


def test_targets_are_two_points_on_the_way_and_the_end_plus_a_deviation() -> None:
    results = ResultFile(None)
    run(SMALL, results, Quiet())
    ((by_name),) = curves(results.rows, None).values()
    wanted = targets(by_name[REFERENCE])
    assert wanted == {
        "quarter": pytest.approx(5.0),
        "half": pytest.approx(4.0),
        FINAL: pytest.approx(2.0 + 0.02**0.5),
    }


def test_a_row_says_when_it_was_there_and_never_is_told() -> None:
    results = ResultFile(None)
    run(SMALL, results, Quiet())
    ours = {row["recipe"]: row for row in results.rows if "reached" in row}
    topk, bf16 = ours["topk"], ours[REFERENCE]
    assert topk["learning_rate"] == 0.2 and topk["learning_rates"] == [0.1, 0.2]
    assert topk["final_gap"] == pytest.approx(1.0) and topk["gap_allowed"] > 0
    assert topk["reached"][FINAL] | {"loss": 0} == {
        "loss": 0, "steps": None, "seconds": None, "bytes": None, "seeds": 0,
    }  # fmt: skip
    half = topk["reached"]["half"]
    assert half["steps"] == pytest.approx(40 * 2 / 3) and half["bytes"] == pytest.approx(267, 0.01)
    assert half["seconds"] == pytest.approx(0.5 * half["steps"])
    assert topk["speedup"]["half"] == pytest.approx(0.75) and topk["speedup"][FINAL] is None
    assert bf16["speedup"] == {"quarter": 1.0, "half": 1.0, FINAL: 1.0}
    assert bf16["reached"][FINAL]["seeds"] == 2 and topk["reached"]["half"]["seeds"] == 2
    assert {kind.name for kind in by_kind(results.rows)} == {"converge", "runs", "steps"}


def test_a_failure_is_a_row_and_the_others_go_on() -> None:
    results = ResultFile(None)
    failures = run(replace(SMALL, recipes=("dense", "topk")), results, Quiet())
    errors = [row for row in results.rows if row.get("error")]
    assert len(failures) == 3 and {row["recipe"] for row in errors} == {"dense"}
    assert {row["error"] for row in errors} == {"ValueError: no"}
    assert errors[0]["points"] is None and errors[-1]["step_seconds"] is None
    assert {row["recipe"] for row in results.rows if "reached" in row} == {REFERENCE, "topk"}


def test_going_on_does_only_what_is_missing_or_failed(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    run(replace(SMALL, recipes=("dense", "topk")), ResultFile(path), Quiet())
    Answering.asked.clear()
    more = replace(SMALL, recipes=("dense", "topk", "union"))
    results = ResultFile(path, rows=kept(path, more))
    run(more, results, Quiet())
    assert {case["recipe"] for case in Answering.asked} == {"dense", "union"}
    summed = [row["recipe"] for row in results.rows if "reached" in row]
    assert summed == [REFERENCE, "topk", "union"]  # once each
    assert json.loads(path.read_text())["rows"] == results.rows


def test_ranks_learn_from_as_many_examples_a_step_as_they_are_told() -> None:
    results = ResultFile(None)
    run(replace(SMALL, examples=12), results, Quiet())
    assert {case["examples"] for case in Answering.asked} == {12}
    runs = [row for row in results.rows if "seed" in row]
    assert {(row["examples"], row["samples_per_step"]) for row in runs} == {(12, 24)}


def test_timed_steps_of_other_examples_or_models_do_not_count() -> None:
    assert alike(times(1000.0, 0.1), SMALL)
    assert not alike(times(1000.0, 0.1), replace(SMALL, examples=12))
    assert not alike(times(1000.0, 0.1) | {"model": "resnet50"}, SMALL)


def test_going_on_with_other_steps_or_learning_rates_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    run(SMALL, ResultFile(path), Quiet())
    for changed in ({"steps": 50}, {"learning_rates": (0.1,)}, {"examples": 12}):
        with pytest.raises(ThinwireError, match=r"results.json: its transformer-tiny had 40 steps"):
            kept(path, replace(SMALL, **changed))
    assert len(kept(path, replace(SMALL, models=("resnet-small",), steps=50))) == 9
    assert kept(tmp_path / "none.json", SMALL) == []


def test_an_interrupted_run_is_summed_up_as_far_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Answering, case: dict[str, Any], on_step: object) -> Any:
        if case["what"] == "time":
            raise KeyboardInterrupt
        return answer(self, case, on_step)  # type: ignore[arg-type]

    answer = Answering.run
    monkeypatch.setattr(Answering, "run", interrupt)
    results = ResultFile(None)
    with pytest.raises(KeyboardInterrupt):
        run(SMALL, results, Quiet())
    summed = [row for row in results.rows if "reached" in row]
    assert len(summed) == 2 and summed[0]["reached"][FINAL]["seconds"] is None
    assert summed[0]["reached"][FINAL]["steps"] is not None


def times(rate: float, seconds: float) -> dict[str, Any]:
    about = {"model": "transformer-tiny", "workers": 2, "device": "cpu", "recipe": REFERENCE}
    about["examples"] = 4
    return about | {"density": None, "rate": rate, "step_seconds": seconds, "bytes_per_step": 1e6}


def test_a_rate_at_which_steps_would_take_too_long_is_computed_not_waited_for() -> None:
    settings = Settings(
        models=("transformer-tiny",), recipes=(), workers=2, rates=("10mbit", "1gbit"), seeds=1
    )
    known = Book([times(1000.0, 0.1)])
    waited = [case.rate for case in cases(settings, known) if case.recipe == REFERENCE]
    assert waited == [None, "10mbit"]  # 0.9 s a step
    known.rows[0]["bytes_per_step"] = 1e8
    assert [c.rate for c in cases(settings, known) if c.recipe == REFERENCE] == [None]


def test_timed_steps_are_those_after_a_warm_up() -> None:
    case = Case("time", 2, "1gbit", "transformer-tiny", "topk", 0.01, "adamw", 0.1, 0)
    told_ranks = order(case, SMALL, {"transformer-tiny": "path"})
    assert told_ranks["arguments"] == {"density": 0.01, "warm_up": None}


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"models": ("vgg16",)}, "vgg16"),
        ({"optimizers": ("adam",)}, "'adam'"),
        ({"recipes": ("no-such-recipe",)}, "no-such-recipe"),
        ({"recipes": ("sparseloco@soon",)}, "sparseloco@soon"),
        ({"recipes": ("sparseloco@0",)}, "every=0"),
        ({"recipes": ("no-such-setup@3",)}, "no-such-setup"),
        ({"learning_rates": (0.0,)}, "lr=0"),
        ({"verify": ("topk",)}, "verify"),
        ({"verify": ("union@1gbit",)}, "verify=union@1gbit"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    changed: dict[str, Any], what: str
) -> None:
    with pytest.raises(ThinwireError, match=what):
        refuse_impossible(Settings(**{"rates": (None,), "recipes": ("topk",), **changed}))


@needs(*CLI)
def test_the_command_learns_on_real_text_the_same_way_twice(tmp_path: Path) -> None:
    """However often it looks."""
    options = "--model transformer-tiny --rates none --workers 2 --seeds 1 --lrs 0.003 "
    options += "--recipes torch-powersgd-4 --steps 24 --timed-steps 4 "
    command = "from thinwire.cli.bench import bench; bench()"
    losses = []
    for every in (12, 24):
        path = tmp_path / f"{every}.json"
        argv = [sys.executable, "-c", command, "converge", *options.split()]
        argv += ["--every", str(every), "--json", str(path)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr
        rows = json.loads(path.read_text())["rows"]
        runs = [row for row in rows if "seed" in row]
        assert [row["recipe"] for row in runs] == [REFERENCE, "torch-powersgd-4"]
        losses.append([row["final_loss"] for row in runs])
    assert losses[0] == losses[1]
    assert all(loss < 5.0 for loss in losses[0])  # of ln 256 = 5.55
    assert runs[0]["points"]["step"] == [0, 24] and "torch-powersgd-4" in done.stdout
    sent = [row["points"]["bytes"][-1] for row in runs]
    if sent[0] is not None:
        assert 24 * 2 * 21_984 <= sent[0] < 24 * 2.4 * 21_984 and sent[1] < sent[0]
