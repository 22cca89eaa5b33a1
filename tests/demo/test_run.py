"""The demo from the command line to its files: real processes, real training.

Covers cli/demo.py.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.extras import CLI, needs
from support.signals import hear_signals
from thinwire.demo.plan import MODELS
from thinwire.workloads.tasks import TASKS

COMMAND = [sys.executable, "-m", "thinwire.cli.app", "demo", "--quick", "--workers", "2"]
by_command = needs(*CLI, "matplotlib", "sklearn")
FIELDS = {"recipe", "workers", "rate", "model", "step", "loss", "seconds", "bytes_sent_per_rank"}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp("demo") / "page"
    done = subprocess.run(
        [
            *COMMAND,
            "--recipes",
            "dense,topk",
            "--out",
            str(out),
            "--json",
            str(out.parent / "demo.json"),
        ],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, out


def runs(content: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in content["rows"]:
        grouped.setdefault((row["recipe"], row["model"]), []).append(row)
    return grouped


@by_command
def test_a_pipe_sees_the_tables_and_nothing_else(quick: tuple[str, Path]) -> None:
    stdout, out = quick
    assert "\x1b" not in stdout and "\r" not in stdout
    assert all(TASKS[model].title in stdout for model in MODELS)
    assert "loopback" in stdout and str(out / "index.html") in stdout


@by_command
def test_the_numbers_have_their_schema_and_the_loss_falls(quick: tuple[str, Path]) -> None:
    content = json.loads((quick[1].parent / "demo.json").read_text())
    assert content["schema"] == 1 and content["machine"]["cores"] >= 1
    assert all(row.keys() >= FIELDS for row in content["rows"])
    grouped = runs(content)
    assert set(grouped) == {(r, m) for r in ("dense", "topk") for m in MODELS}
    for rows in grouped.values():
        steps = [row["step"] for row in rows]
        assert steps == sorted(set(steps)) and rows[-1]["step"] == steps[-1]
        assert rows[-1]["held_out_loss"] < rows[0]["loss"]
        assert rows[-1].keys() >= {"learning_rate", "momentum", "settings"}
        assert rows[0]["bytes_sent_per_rank"] < rows[-1]["bytes_sent_per_rank"]


@by_command
def test_recipes_start_alike_and_compression_sends_less(quick: tuple[str, Path]) -> None:
    grouped = runs(json.loads((quick[1].parent / "demo.json").read_text()))
    for model in MODELS:
        dense, topk = grouped["dense", model], grouped["topk", model]
        assert dense[0]["loss"] == topk[0]["loss"]  # same weights, same first batch
        assert topk[-1]["bytes_sent_per_rank"] < dense[-1]["bytes_sent_per_rank"] / 2


@by_command
def test_the_page_shows_both(quick: tuple[str, Path]) -> None:
    html = (quick[1] / "index.html").read_text()
    for recipe in ("dense", "topk"):
        assert f'class="line" data-recipe="{recipe}"' in html


@by_command
def test_an_interrupt_ends_the_workers_and_leaves_what_was_measured(tmp_path: Path) -> None:
    numbers = tmp_path / "demo.json"
    process = subprocess.Popen(
        [*COMMAND, "--steps", "100000", "--recipes", "topk", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=hear_signals,
    )
    try:
        workers = _wait_for_children(process.pid, 2)
        time.sleep(3)  # joined, and in the middle of a run that would take hours
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode not in (0, None)
    assert b"Traceback" not in errors
    assert json.loads(numbers.read_text())["rows"] == []
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def _wait_for_children(pid: int, count: int) -> list[int]:
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():
        pytest.skip("needs /proc to see the workers")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        workers = [int(c) for c in children if b"thinwire.lab.rank_main" in _command_line(c)]
        if len(workers) == count:
            return workers
        time.sleep(0.1)
    raise AssertionError("the workers did not start")


def _command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
