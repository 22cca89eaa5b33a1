"""`bench train`: the plan, the rows, times to a target, and readable however it ends.

Covers cli/bench_train.py.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.extras import CLI, needs
from thinwire.bench.peers import BASELINE
from thinwire.bench.runner import Answers
from thinwire.bench.timing import Quiet
from thinwire.bench.train.curve import POINTS, Run
from thinwire.bench.train.plan import Case, Settings, order, plan
from thinwire.bench.train.run import Baselines, run
from thinwire.errors import ThinwireError
from thinwire.lab import Lab, LabError, unavailable
from thinwire.lab.ranks import CaseError
from thinwire.results.file import ResultFile
from thinwire.workloads.compute import declared_compute

COMMAND = "from thinwire.cli.bench import bench; bench()"
by_command = needs(*CLI)
FIELDS = {
    *("recipe", "peer", "workers", "nodes", "rate", "rate_measured", "model", "parameters"),
    *("overlap", "density", "compute_seconds", "seed", "step", "loss", "seconds"),
    "bytes_sent_per_rank",
}
SUMMARY = {
    *("step_seconds", "step_seconds_min", "step_seconds_max", "step_seconds_iqr"),
    *("exposed_seconds", "seconds_by_phase", "steps", "warmup", "learning_rate", "momentum"),
    *("final_loss", "target_loss", "seconds_to_target", "speedup_over_dense"),
    *("speedup_to_target", "cores_busy_with_other_work"),
}
CASE = Case(2, None, "digits", "topk", {"density": 0.05}, 10, 0.1, 0.9, seed=7)
SHAPE_CASE = Case(2, None, "resnet18", "topk", {"density": 0.01}, 10, compute=0.5)


def test_each_model_begins_with_the_baseline_and_has_its_own_settings() -> None:
    cases = plan(Settings(("text", "resnet18"), ("topk", "dgc", "dense"), rates=(None,)))
    assert [case.recipe for case in cases] == [BASELINE, "topk", "dgc", "dense"] * 2
    text, resnet = cases[:4], cases[4:]
    assert [case.density for case in text] == [None, 0.05, 0.05, None]
    assert [case.density for case in resnet] == [None, 0.01, 0.01, None]
    assert [case.momentum for case in text] == [0.9, 0.9, 0.0, 0.9]
    assert {case.compute for case in text} == {0.0}
    assert {case.compute for case in resnet} == {declared_compute("resnet18")}


def test_what_is_asked_for_comes_before_the_models_own() -> None:
    settings = Settings(
        ("text", "gpt2"), (), rates=(None,), compute=0.2, steps=7, learning_rate=0.5
    )
    for case in plan(settings):
        assert (case.compute, case.steps) == (0.2, 7)
    assert [case.learning_rate for case in plan(settings)] == [0.5, None]


def test_declared_compute_follows_from_the_models_work() -> None:
    """6 · 1.814 G · 32 operations at 7.85 TFLOP/s."""
    assert declared_compute("resnet18") == pytest.approx(0.044, abs=0.0006)
    assert declared_compute("vgg16") == pytest.approx(0.378, abs=0.0006)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (Settings(("resnet1001",), rates=(None,)), "resnet1001"),
        (Settings(recipes=("no-such-recipe",), rates=(None,)), "no-such-recipe"),
        (Settings(recipes=("torch-topk",), rates=(None,)), "torch-topk"),
        (Settings(workers=(3,), nodes=2, rates=(None,)), "3 workers"),
        (Settings(rates=("fast",)), "fast"),
        (Settings(rates=(None,), steps=2, warmup=2), "steps=2"),
        (Settings(rates=(None,), compute=-1.0), "compute=-1"),
        (Settings(recipes=(), rates=(None,), density=0.0), "density=0.0"),
        (Settings(rates=(None,), learning_rate=0.0), "lr=0.0"),
        (Settings(workers=(0,), rates=(None,)), "workers=0"),
        (Settings(("text", "vgg16"), workers=(4096,), rates=(None,)), "4096 workers with vgg16"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(settings: Settings, what: str) -> None:
    with pytest.raises((ThinwireError, LabError), match=what):
        plan(settings)


def test_links_that_cannot_be_made_are_refused_with_what_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise LabError("no namespaces here")

    monkeypatch.setattr("thinwire.bench.limits.refuse_without_means", refuse)
    with pytest.raises(LabError, match=r"no namespaces here.*--rates none"):
        plan(Settings(rates=(None, "1gbit")))


def test_ranks_get_time_to_reach_a_target_and_stop_without_one() -> None:
    assert order(CASE, target=None)["max_steps"] == 10
    assert order(CASE, target=0.5)["max_steps"] == 20


def answer(seconds: list[float], links: list[int | None]) -> dict[str, Any]:
    losses = [1.0 / (step + 1) for step in range(len(seconds))]
    bytes_of_sockets = [100 * (step + 1) for step in range(len(seconds))]
    return {
        "seconds": seconds,
        "losses": losses,
        "link_bytes": links,
        "socket_bytes": bytes_of_sockets,
        "phases": {"select": seconds[0]},
    }


def answers(ranks: list[dict[str, Any]], nodes: int) -> Answers:
    return Answers(Lab(nodes, loopback=True), ranks, None)


def test_a_step_lasts_as_long_as_its_slowest_rank_and_a_node_has_one_link() -> None:
    one, other = answer([1.0, 2.0], [10, 20]), answer([2.0, 1.0], [10, 20])
    both = Run.of(answers([one, other], nodes=1))
    assert both.seconds == [2.0, 2.0]
    assert both.bytes_sent == [5.0, 10.0]
    assert both.phases == {"select": 1.5}
    assert Run.of(answers([one, other], nodes=2)).bytes_sent == [10.0, 20.0]


def test_without_links_bytes_are_those_of_the_sockets_and_none_if_nobody_counts() -> None:
    ranks = [answer([1.0, 1.0], [None, None]) for _ in range(2)]
    assert Run.of(answers(ranks, nodes=2)).bytes_sent == [100.0, 200.0]
    uncounted = [rank | {"socket_bytes": [None, None]} for rank in ranks]
    assert Run.of(answers(uncounted, nodes=2)).bytes_sent is None


def test_a_curve_is_cumulative_and_has_the_first_and_the_last_step() -> None:
    steps = 5 * POINTS
    measured = Run([0.5] * steps, [float(step) for step in range(steps)], [10.0] * steps, {})
    rows = measured.curve(CASE, Lab(2, loopback=True))
    assert set(rows[0]) == FIELDS and {row["seed"] for row in rows} == {7}
    assert (rows[0]["step"], rows[-1]["step"]) == (1, steps) and len(rows) <= POINTS + 2
    for row in rows:
        assert (
            row["seconds"] == row["step"] * 0.5 and row["bytes_sent_per_rank"] == 10 * row["step"]
        )
    second_to_last, last = rows[-2:]
    assert last["loss"] == pytest.approx((second_to_last["step"] + steps - 1) / 2)  # since then
    shape_rows = measured.curve(SHAPE_CASE, Lab(2, loopback=True))
    assert {row["loss"] for row in shape_rows} == {None}


def test_the_time_to_a_target_ends_with_the_step_that_reaches_it() -> None:
    measured = Run([2.0] * 4, [4.0, 3.0, 1.0, 2.0], None, {})
    assert measured.to_target(CASE, 3.0) == {"target_loss": 3.0, "seconds_to_target": 4.0}
    assert measured.to_target(CASE, 0.5)["seconds_to_target"] is None
    assert measured.to_target(CASE, None) == {"target_loss": None, "seconds_to_target": None}


def test_the_baselines_end_is_the_target_unless_another_is_asked_for() -> None:
    measured = Run([2.0] * 4, [4.0, 3.0, 1.0, 2.0], None, {})
    dense = replace(CASE, recipe=BASELINE)
    baselines, asked = Baselines(None), Baselines(0.25)
    for known in (baselines, asked):
        known.note(CASE, measured)
    assert (baselines.target(CASE), asked.target(CASE)) == (None, 0.25)
    for known in (baselines, asked):
        known.note(dense, measured)
    assert (baselines.target(CASE), asked.target(CASE)) == (2.0, 0.25)
    assert baselines.target(replace(CASE, workers=4)) is None
    assert baselines.target(SHAPE_CASE) is None


def test_speedups_refer_to_the_baseline_on_the_same_links_with_the_same_overlap() -> None:
    baselines = Baselines(None)
    dense = replace(CASE, recipe=BASELINE)
    slow, fast, never = (
        {"step_seconds": step, "seconds_to_target": target}
        for step, target in ((4.0, 40.0), (1.0, 20.0), (2.0, None))
    )
    assert baselines.speedups(dense, slow) == {"speedup_over_dense": 1.0, "speedup_to_target": 1.0}
    assert baselines.speedups(CASE, fast) == {"speedup_over_dense": 4.0, "speedup_to_target": 2.0}
    assert baselines.speedups(CASE, never) == {"speedup_over_dense": 2.0, "speedup_to_target": None}
    elsewhere = baselines.speedups(replace(CASE, overlap=False), fast)
    assert elsewhere == {"speedup_over_dense": None, "speedup_to_target": None}


def test_a_loss_is_smoothed_before_it_is_compared() -> None:
    case = replace(CASE, steps=20)
    measured = Run([1.0] * 4, [4.0, 1.0, 3.0, 1.5], None, {})
    assert measured.smoothed(case) == [4.0, 2.5, 2.0, 2.25]
    assert measured.to_target(case, 2.0)["seconds_to_target"] == 3.0


def test_exposed_is_what_the_declared_compute_does_not_hide() -> None:
    measured = Run([9.0, 0.7, 0.9, 0.8], [0.0] * 4, None, {})
    found = measured.summary(SHAPE_CASE, warmup=1)
    assert found["step_seconds"] == 0.8 and found["exposed_seconds"] == pytest.approx(0.3)
    assert (found["step_seconds_min"], found["step_seconds_max"]) == (0.7, 0.9)
    assert measured.summary(CASE, warmup=1)["exposed_seconds"] is None


OPTIONS = "--models text --recipes topk --workers 2 --rates none --steps 6 --overlap on,off"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, Any]]]:
    """What it printed and what it wrote."""
    path = tmp_path_factory.mktemp("bench") / "train.json"
    process = subprocess.run(
        [sys.executable, "-c", COMMAND, "train", *OPTIONS.split(), "--json", str(path)],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert process.returncode == 0, process.stderr
    yield process.stdout, json.loads(path.read_text())


def runs(content: dict[str, Any]) -> dict[tuple[str, bool], list[dict[str, Any]]]:
    found: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for row in content["rows"]:
        found.setdefault((row["recipe"], row["overlap"]), []).append(row)
    return found


@by_command
def test_every_run_has_a_curve_that_ends_in_its_summary(done: tuple[str, dict[str, Any]]) -> None:
    found = runs(done[1])
    assert set(found) == {(recipe, on) for recipe in (BASELINE, "topk") for on in (True, False)}
    for rows in found.values():
        assert all(set(row) == FIELDS for row in rows[:-1])
        assert set(rows[-1]) == FIELDS | SUMMARY
        assert [row["step"] for row in rows] == list(range(1, rows[-1]["steps"] + 1))
        for early, late in pairwise(rows):
            assert early["seconds"] < late["seconds"]
            assert early["bytes_sent_per_rank"] < late["bytes_sent_per_rank"]


@by_command
def test_dense_sets_the_target_that_the_others_go_for(done: tuple[str, dict[str, Any]]) -> None:
    ends = {run: rows[-1] for run, rows in runs(done[1]).items()}
    dense = ends[BASELINE, True]
    assert dense["steps"] == 6 and dense["target_loss"] == dense["final_loss"]
    assert dense["speedup_over_dense"] == dense["speedup_to_target"] == 1.0
    assert {row["target_loss"] for row in ends.values()} == {dense["target_loss"]}
    for row in ends.values():
        reached = row["seconds_to_target"]
        assert row["steps"] == 12 if reached is None else 6 <= row["steps"] <= 12
        assert (row["speedup_to_target"] is None) == (reached is None)


@by_command
def test_overlap_changes_no_loss(done: tuple[str, dict[str, Any]]) -> None:
    found = runs(done[1])
    for recipe in (BASELINE, "topk"):
        on, off = ([row["loss"] for row in found[recipe, overlap]] for overlap in (True, False))
        assert on == off


@by_command
def test_a_pipe_gets_one_plain_table_and_no_progress(done: tuple[str, dict[str, Any]]) -> None:
    printed, _ = done
    assert "\x1b" not in printed and "left" not in printed and "…" not in printed.replace(" … ", "")
    assert printed.count("topk(0.05)") == 2 and "target loss" in printed


class NoWorkers:
    """Answers at once, without processes; topk fails, and the third case is interrupted."""

    def __init__(self, lab: Lab, workers: int, target: str) -> None:
        self.cases = 0

    def run(self, case: dict[str, Any], on_step: Callable[[], None]) -> list[dict[str, Any]]:
        self.cases += 1
        if self.cases == 3:
            raise KeyboardInterrupt
        if case["recipe"] == "topk":
            raise CaseError("rank 1 failed")
        on_step()
        return [{**answer([1.0] * case["steps"], [None] * case["steps"]), "cpu_seconds": 0.0}] * 2


def test_an_interrupted_run_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thinwire.bench.runner.Workers", NoWorkers)
    path = tmp_path / "train.json"
    settings = Settings(("digits",), ("dense", "bf16"), (2,), rates=(None,), steps=3)
    with pytest.raises(KeyboardInterrupt):
        run(settings, ResultFile(path), Quiet())
    rows = json.loads(path.read_text())["rows"]
    assert [(row["recipe"], row["step"]) for row in rows] == [
        (recipe, step) for recipe in (BASELINE, "dense") for step in (1, 2, 3)
    ]


def test_a_run_that_fails_is_told_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thinwire.bench.runner.Workers", NoWorkers)
    settings = Settings(("digits",), ("topk",), (2,), rates=(None,), overlap=(True,), steps=3)
    results = ResultFile(None)
    (failure,) = run(settings, results, Quiet())
    assert failure.startswith("topk") and "rank 1 failed" in failure
    assert {row["recipe"] for row in results.rows} == {BASELINE}


class Counting(Quiet):
    def __init__(self) -> None:
        self.steps = 0

    def advance(self, note: str = "", steps: int = 1) -> None:
        self.steps += steps


def test_progress_counts_the_steps_that_need_not_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thinwire.bench.runner.Workers", NoWorkers)
    settings, watcher = Settings(("digits",), (), (2,), rates=(None,), steps=3), Counting()
    run(settings, ResultFile(None), watcher)
    (case,) = plan(settings)
    assert watcher.steps == 1 + case.max_steps - case.steps  # this worker reports one step only


REASON = unavailable()


@pytest.mark.skipif(REASON is not None, reason=f"no lab here: {REASON}")
def test_on_links_bytes_come_from_their_counters() -> None:
    settings = Settings(
        ("text",), ("topk",), (2,), rates=("1gbit",), steps=6, warmup=0, check="skip"
    )
    results = ResultFile(None)
    assert run(settings, results, Quiet()) == []
    # What a rank sent last may still wait in its link when its step is over: some 70 KB of 6.5 MB.
    dense = next(row for row in results.rows if row["step"] == 6 and row["peer"])
    assert dense["rate"] == 1000 and dense["nodes"] == 2
    payload = 6 * 4 * dense["parameters"]  # 2 (P-1)/P of them at P = 2
    assert 0.95 * payload < dense["bytes_sent_per_rank"] < 1.5 * payload
