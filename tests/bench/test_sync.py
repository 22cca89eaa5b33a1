"""`bench sync`, small, on the loopback and on links: rows for all, and readable however it ends.

Covers bench/runner.py and cli/bench_sync.py.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import thinwire as tw
from support.extras import CLI, needs
from thinwire.bench.peers import BASELINE, PEERS
from thinwire.bench.sync.run import Settings, run
from thinwire.bench.timing import Quiet
from thinwire.lab import unavailable
from thinwire.results.file import ResultFile

COMMAND = "from thinwire.cli.bench import bench; bench()"
by_command = needs(*CLI)
FIELDS = {
    *("recipe", "peer", "workers", "nodes", "rate", "n", "density", "steps"),
    *("seconds", "seconds_min", "seconds_max", "seconds_iqr", "seconds_by_phase"),
    *("bytes_sent_per_rank", "socket_bytes_per_rank", "speedup_over_dense"),
}
OPTIONS = ["--workers", "2", "--n", "20k", "--rates", "none", "--steps", "2", "--warmup", "1"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, Any]]]:
    """What it printed and what it wrote."""
    path = tmp_path_factory.mktemp("bench") / "sync.json"
    process = subprocess.run(
        [sys.executable, "-c", COMMAND, "sync", *OPTIONS, "--json", str(path)],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert process.returncode == 0, process.stderr
    yield process.stdout, json.loads(path.read_text())


@by_command
def test_there_is_a_row_for_every_recipe_and_peer(done: tuple[str, dict[str, Any]]) -> None:
    _, content = done
    assert content["schema"] == 1
    assert {"cpu", "cores", "load_before"} <= set(content["machine"])
    assert {row["recipe"] for row in content["rows"]} == {*tw.recipes(), *PEERS}


@by_command
def test_low_rank_is_of_the_matrix_that_hooks_get(done: tuple[str, dict[str, Any]]) -> None:
    sent = {row["recipe"]: row["bytes_sent_per_rank"] for row in done[1]["rows"]}
    matrix, rest, framing = 141 + 141, 20_000 - 141**2, 2_000
    assert 0 <= sent["powersgd"] - 4 * (4 * matrix + rest) <= framing


@by_command
def test_rows_have_all_fields_and_sound_numbers(done: tuple[str, dict[str, Any]]) -> None:
    for row in done[1]["rows"]:
        assert set(row) >= FIELDS, row["recipe"]
        assert row["workers"] == 2 and row["n"] == 20_000 and row["rate"] is None
        assert 0 < row["seconds_min"] <= row["seconds"] <= row["seconds_max"]
        assert row["speedup_over_dense"] > 0
        assert row["bytes_sent_per_rank"] > 0
        assert row["peer"] == (row["recipe"] in PEERS)


@by_command
def test_our_recipes_are_split_into_phases(done: tuple[str, dict[str, Any]]) -> None:
    for row in done[1]["rows"]:
        if not row["peer"]:
            selects = tw.recipe(row["recipe"]).sparsifier.density is not None
            phases = {"exchange", "feedback", "other"} | ({"select"} if selects else set())
            assert set(row["seconds_by_phase"]) >= phases
            assert all(seconds >= 0 for seconds in row["seconds_by_phase"].values())


@by_command
def test_what_pieces_tell_of_their_steps_is_in_the_rows(done: tuple[str, dict[str, Any]]) -> None:
    told = {row["recipe"]: row["series"] for row in done[1]["rows"]}
    assert told[BASELINE] == told["topk"] == {}
    assert 0 <= told["ok-topk"]["threshold_evaluated"] <= 1 < told["ok-topk"]["global_count"]
    assert 200 <= told["topk-dsa"]["union_count"] <= 400  # of 2 ranks with 1 % of 20,000 each


@by_command
def test_bytes_are_what_each_method_must_send(done: tuple[str, dict[str, Any]]) -> None:
    sent = {row["recipe"]: row["bytes_sent_per_rank"] for row in done[1]["rows"]}
    assert 80_000 <= sent[BASELINE] < 82_000  # 2 (P-1)/P · 4n at P = 2
    assert 40_000 <= sent["torch-fp16"] < 42_000
    assert 1_600 <= sent["torch-topk"] < 3_000  # 8 bytes per element, 1 % of them


@by_command
def test_a_pipe_gets_one_plain_table_and_no_progress(done: tuple[str, dict[str, Any]]) -> None:
    printed, content = done
    assert "\x1b" not in printed and "left" not in printed
    assert all(row["recipe"] in printed for row in content["rows"])


class Interrupting(Quiet):
    """Ctrl-C, at the start of the second case."""

    def __init__(self) -> None:
        self.cases = 0

    def start(self, what: str) -> None:
        self.cases += what.startswith(("torch-", "topk"))
        if self.cases == 2:
            raise KeyboardInterrupt


def test_an_interrupted_run_can_be_read_and_leaves_no_process(tmp_path: Path) -> None:
    path = tmp_path / "sync.json"
    settings = Settings(("topk",), n=(1000,), workers=(2,), rates=(None,), steps=1, warmup=0)
    with pytest.raises(KeyboardInterrupt):
        run(settings, ResultFile(path), Interrupting())
    assert [row["recipe"] for row in json.loads(path.read_text())["rows"]] == [BASELINE]
    assert not any(b"thinwire.lab.rank_main" in line for line in command_lines_of_our_children())


def command_lines_of_our_children() -> list[bytes]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children]


REASON = unavailable()


@pytest.mark.skipif(REASON is not None, reason=f"no lab here: {REASON}")
def test_on_links_bytes_come_from_their_counters_and_payloads_repeat(tmp_path: Path) -> None:
    settings = Settings(
        ("topk",), n=(20_000,), workers=(2,), rates=("1gbit",), steps=2, check="skip"
    )
    runs = [ResultFile(None), ResultFile(None)]
    for results in runs:
        assert run(settings, results, Quiet()) == []
    first, second = (results.rows for results in runs)
    for row, again in zip(first, second, strict=True):
        assert row["rate"] == 1000 and row["nodes"] == 2
        assert row["socket_bytes_per_rank"] == again["socket_bytes_per_rank"]
        payload, on_the_link = row["socket_bytes_per_rank"], row["bytes_sent_per_rank"]
        assert payload < on_the_link < 1.5 * payload + 5_000


def test_a_case_that_fails_is_told_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr("thinwire.bench.sync.run.TARGET", "support.failing_case:measure")
    settings = Settings(("topk", "dgc"), n=(1000,), workers=(2,), rates=(None,), steps=1, warmup=0)
    results = ResultFile(None)
    (failure,) = run(settings, results, Quiet())
    assert failure.startswith("topk") and "this one fails" in failure
    assert [row["recipe"] for row in results.rows] == [BASELINE, "dgc"]
