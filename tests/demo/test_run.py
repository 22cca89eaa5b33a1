"""The demo from the command line to its files: real processes, real links, real training.

Covers cli/demo.py, demo/case.py.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.extras import CLI, needs
from support.signals import hear_signals
from thinwire.bench.peers import BASELINE
from thinwire.lab import unavailable

COMMAND = [sys.executable, "-m", "thinwire.cli.app", "demo", "--workers", "2"]
by_command = needs(*CLI, "matplotlib", "sklearn")


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp("demo")
    options = ["--steps", "20", "--recipes", "topk", "--rate", "1gbit", "--out", str(out)]
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "USDT" not in done.stderr
    return done.stdout, out


@pytest.fixture(scope="module")
def runs(short: tuple[str, Path]) -> dict[str, dict[str, Any]]:
    content = json.loads((short[1] / "demo.json").read_text())
    assert content["schema"] == 1 and content["machine"]["cores"] >= 1
    return {row["recipe"]: row for row in content["rows"] if "seed" in row}


@by_command
def test_a_pipe_sees_the_sentence_the_table_and_what_to_type_next(short: tuple[str, Path]) -> None:
    stdout, out = short
    assert "\x1b" not in stdout and "\r" not in stdout
    assert "dense reaches" in stdout and "thinwire doctor" in stdout
    assert str(out / "index.html") in stdout
    where = "1 Gbit/s, for real" if unavailable() is None else "loopback"
    assert where in stdout


@by_command
def test_both_start_alike_learn_and_compression_sends_less(runs: dict[str, Any]) -> None:
    assert set(runs) == {BASELINE, "topk"}
    dense, topk = (runs[name]["points"] for name in (BASELINE, "topk"))
    assert dense["held_out_loss"][0] == topk["held_out_loss"][0]
    for points in (dense, topk):
        assert points["held_out_loss"][-1] < points["held_out_loss"][0]
        assert points["seconds"] == sorted(points["seconds"])
    assert topk["bytes"][-1] < dense["bytes"][-1] / 2


@by_command
def test_the_page_shows_both_and_a_step_of_each_that_counts(short: tuple[str, Path]) -> None:
    html = (short[1] / "index.html").read_text()
    for name in (BASELINE, "topk 1 %"):
        assert f'class="line" data-recipe="{name}"' in html
    assert f"One step of {BASELINE}" in html


@by_command
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_workers_and_leaves_what_was_measured(
    number: signal.Signals, tmp_path: Path
) -> None:
    numbers, temporary = tmp_path / "demo.json", tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [*COMMAND, "--steps", "100000", "--recipes", "topk", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=hear_signals,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    try:
        workers = _wait_for_ranks(process.pid, 2)
        time.sleep(3)  # joined, and in the middle of a run that would take hours
        assert list(temporary.glob("thinwire-demo-*"))
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode not in (0, None)
    assert b"Traceback" not in errors
    assert json.loads(numbers.read_text())["rows"] == []
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    assert not list(temporary.glob("thinwire-*"))


def _wait_for_ranks(pid: int, count: int) -> list[int]:
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():
        pytest.skip("needs /proc to see the workers")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ranks = [p for p in _descendants(pid) if b"thinwire.lab.rank_main" in _command_line(p)]
        if len(ranks) == count:
            return ranks
        time.sleep(0.1)
    raise AssertionError("the workers did not start")


def _descendants(pid: int) -> list[int]:
    """Those in namespaces have a holder between."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [p for child in map(int, children) for p in (child, *_descendants(child))]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
