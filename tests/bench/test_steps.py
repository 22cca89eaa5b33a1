"""`bench train --device`: the plan, the rows, what they refer to, and failures that end nothing.

Covers cli/bench_steps.py.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from support.extras import CLI, needs
from thinwire.bench.peers import BASELINE
from thinwire.bench.runner import Answers
from thinwire.bench.steps.plan import RECIPES, Settings, plan
from thinwire.bench.steps.run import MEASURED, References, measured, run
from thinwire.bench.timing import Quiet
from thinwire.cookbook import at_density
from thinwire.errors import ThinwireError
from thinwire.lab import Lab, LabError
from thinwire.lab.ranks import CaseError, WorkerError
from thinwire.report.steps import COMPUTE
from thinwire.results.file import ResultFile

SMALL = Settings("cpu", ("gpt2-tiny",), ("dense", "topk"), (2,), rates=(None,), steps=4, warmup=1)


def test_each_model_begins_with_what_the_others_refer_to() -> None:
    settings = Settings("cpu", ("gpt2", "bert"), ("topk", BASELINE), rates=(None, None))
    first = [COMPUTE, BASELINE, "topk"]
    assert [case.recipe for case in plan(settings)] == [*first, *first, *first[1:], *first[1:]]
    assert [case.density for case in plan(settings)][:3] == [None, None, 0.01]


def test_without_names_the_goals_recipes_aremeasured_and_all_means_all() -> None:
    names = [case.recipe for case in plan(Settings("cpu", rates=(None,), density=0.02))]
    assert len(names) == 2 + len(RECIPES) and "union(0.02, dtype='bf16')" in names
    for name in names:
        if not name.startswith(("torch-", COMPUTE)):
            at_density(name, None)
    every = [case.recipe for case in plan(Settings("cpu", recipes=("all",), rates=(None,)))]
    assert {"torch-powersgd-32", "gtopk", "3lc"} <= set(every) and "torch-topk" not in every


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"models": ("vgg16",)}, "vgg16"),
        ({"recipes": ("no-such-recipe",)}, "no-such-recipe"),
        ({"recipes": ("torch-topk",)}, "torch-topk"),
        ({"density": 0.0}, "density=0.0"),
        ({"steps": 0}, "steps"),
        ({"workers": (3,), "nodes": 2}, "3 workers"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    changed: dict[str, Any], what: str
) -> None:
    with pytest.raises(ThinwireError, match=what):
        plan(Settings("cpu", **{"rates": (None,), **changed}))


def answer(ends: list[float], link: int | None, memory: int | None = None) -> dict[str, Any]:
    return {
        "ends": ends,
        "every": 1,
        "warmup": 1,
        "link_bytes": link,
        "socket_bytes": 70,
        "peak_memory": memory,
        "losses": [4.0, 3.0, 2.0, 1.0],
        "phases": {"select": ends[1]},
        "counted_bytes": 5,
        "decision": None,
        "spans": [{"stream": "stream 7", "what": "backward", "start": 0.0, "end": 0.1}],
        "cpu_seconds": 0.0,
    }


def test_a_step_ends_with_its_last_rank_and_no_wait_is_counted_twice() -> None:
    ranks = [answer([0.0, 1.0, 2.5, 3.0], 60), answer([0.1, 1.1, 2.1, 3.1], 30)]
    row = measured(Answers(Lab(2, loopback=True), ranks, None), most=3)
    assert row["step_seconds"] == pytest.approx(1.0)  # of 1.0, 1.4 and 0.6
    assert row["step_seconds_p10"] < 1.0 < row["step_seconds_p90"]
    assert row["bytes_per_step"] == 15 and row["final_loss"] == 2.0
    assert (row["steps"], row["steps_trained"]) == (3, 3)  # the fourth is auto's alone
    assert row["seconds_by_phase"] == {"select": 1.05}
    sockets = [one | {"link_bytes": None} for one in ranks]
    assert measured(Answers(Lab(2, loopback=True), sockets, None), 3)["bytes_per_step"] == 23
    rounds = [answer([0.0, 0.1, 0.2, 3.0], 60) | {"every": 3}] * 2
    row = measured(Answers(Lab(2, loopback=True), rounds, None), most=3)
    assert row["step_seconds"] == pytest.approx(1.0)  # one of the three exchanges


def test_rows_refer_to_compute_alone_and_to_dense_over_the_same_links() -> None:
    references = References()
    compute, dense, ours, elsewhere = (
        {"workers": 4, "model": "gpt2", "recipe": recipe, "rate": rate}
        | {"step_seconds": seconds, "peak_memory_bytes": memory}
        for recipe, rate, seconds, memory in (
            (COMPUTE, 1000.0, 1.0, 90),
            (BASELINE, 1000.0, 4.0, 100),
            ("topk", 1000.0, 2.0, 130),
            ("topk", 10000.0, 2.0, 130),
        )
    )
    for row in (compute, dense, ours, elsewhere):
        references.enter(row)
    assert ours["above_compute_seconds"] == 1.0 and ours["speedup_over_dense"] == 2.0
    assert ours["memory_above_dense_bytes"] == 30
    assert elsewhere["above_compute_seconds"] == 1.0 and "speedup_over_dense" not in elsewhere
    assert compute["above_compute_seconds"] == 0.0 and "speedup_over_dense" not in compute


class Failing:
    """Answers at once, without processes; dense fails, and topk's ranks die."""

    started = 0

    def __init__(self, lab: Lab, workers: int, target: str) -> None:
        Failing.started += 1

    def run(self, case: dict[str, Any], on_step: Callable[[], None]) -> list[dict[str, Any]]:
        if case["recipe"] == "dense":
            raise CaseError("rank 1 failed:\nTraceback\nValueError: no")
        if case["recipe"] == "topk":
            raise WorkerError("rank 0 died (exit status 1)")
        return [answer([0.0, 1.0], None)] * 2


def test_a_failure_is_a_row_and_dead_ranks_are_started_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("thinwire.bench.runner.Workers", Failing)
    monkeypatch.setattr(Failing, "started", 0)
    results = ResultFile(None)
    settings = Settings("cpu", ("gpt2-tiny",), ("dense", "topk", "union"), (2,), rates=(None,))
    failures = run(settings, results, Quiet())
    errors = {row["recipe"]: row["error"] for row in results.rows}
    assert errors == {
        COMPUTE: None,
        BASELINE: None,
        "dense": "ValueError: no",
        "topk": "rank 0 died (exit status 1)",
        "union": None,
    }
    assert len(failures) == 2 and Failing.started == 2
    assert results.rows[2]["step_seconds"] is None
    assert all(set(MEASURED) <= set(row) for row in results.rows)


def test_when_the_budget_is_over_nothing_more_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thinwire.bench.runner.Workers", Failing)
    results = ResultFile(None)
    settings = Settings("cpu", ("gpt2-tiny",), (), (2,), rates=(None,), budget_s=0.0)
    assert run(settings, results, Quiet()) == [] and results.rows == []


@needs(*CLI)
def test_the_command_trains_a_real_model_and_traces_a_step(tmp_path: Path) -> None:
    path, trace = tmp_path / "steps.json", tmp_path / "trace.json"
    options = "--device cpu --model resnet50-tiny --rates none --workers 2 --steps 6 --warm-up 5 "
    options += "--recipes torch-powersgd-4,topk,localsgd@3 --density 0.05"
    command = "from thinwire.cli.bench import bench; bench()"
    argv = [sys.executable, "-c", command, "train", *options.split()]
    argv += ["--json", str(path), "--trace", str(trace)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    rows = {row["recipe"]: row for row in json.loads(path.read_text())["rows"]}
    assert list(rows) == [COMPUTE, BASELINE, "torch-powersgd-4", "topk", "localsgd@3"]
    assert all(row["error"] is None and row["steps"] == 6 for row in rows.values())
    dense = rows[BASELINE]["bytes_per_step"]
    if dense is not None:
        parameters = rows[BASELINE]["parameters"]
        assert 4 * parameters <= dense < 4.4 * parameters  # 2 (P-1)/P of them at P = 2
        assert rows[COMPUTE]["bytes_per_step"] < rows["topk"]["bytes_per_step"] < dense / 5
        assert dense / 3.1 < rows["localsgd@3"]["bytes_per_step"] < dense / 2.9
    assert rows[COMPUTE]["above_compute_seconds"] == 0.0
    assert rows["topk"]["counted_bytes_per_step"] > 0 and rows[BASELINE]["seconds_by_phase"] == {}
    assert "left out" not in done.stdout and "topk(0.05)" in done.stdout
    spans = json.loads(trace.read_text())["rows"]
    kinds = {span["what"] for span in spans if span["recipe"] == "topk"}
    assert {"forward", "backward", "select", "exchange", "optimizer"} <= kinds


def test_a_rate_that_cannot_be_had_is_told_in_rows_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(lab: Lab) -> Lab:
        if lab.network is not None:
            raise LabError("the links do not carry their rate")
        return lab

    monkeypatch.setattr("thinwire.bench.runner.Workers", Failing)
    monkeypatch.setattr("thinwire.bench.steps.plan.refuse_links", lambda *_: None)
    monkeypatch.setattr(Lab, "__enter__", refuse)
    results = ResultFile(None)
    settings = Settings("cpu", ("gpt2-tiny",), ("union",), (2,), rates=("1gbit", None))
    assert len(run(settings, results, Quiet())) == 3
    found = [(row["recipe"], row["rate"], row["error"]) for row in results.rows]
    why = "the links do not carry their rate"
    assert found == [
        *((name, 1000.0, why) for name in (COMPUTE, BASELINE, "union")),
        *((name, None, None) for name in (BASELINE, "union")),
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused_before_anything_starts() -> None:
    with pytest.raises(ThinwireError, match="no CUDA device"):
        plan(Settings("cuda", rates=(None,)))
