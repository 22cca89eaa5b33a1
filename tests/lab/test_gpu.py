"""Ranks that share cards. Where there is no card, a stand-in for MPS records what it was told.

Covers lab/watcher.py.
"""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from thinwire.lab import Lab, LabError
from thinwire.lab import gpu as gpu_module
from thinwire.lab.ranks import Workers
from thinwire.lab.watcher import MPS, marked, mps_mark

needs_a_card = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

# What it was told, with its folder; the daemon itself is a process that waits.
STAND_IN = """#!/bin/sh
if [ "$1" = -d ]; then
  echo "start ${CUDA_VISIBLE_DEVICES-all}" >> "$RECORD"
  test -n "$REFUSES" && { echo "no such luck"; exit 3; }
  setsid sleep 1000 > /dev/null 2>&1 &
  exit 0
fi
echo "$(cat) $(ls -d "$CUDA_MPS_PIPE_DIRECTORY")" >> "$RECORD"
"""


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One card, and what the stand-in of MPS was told."""
    program, record = tmp_path / MPS, tmp_path / "record"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("RECORD", str(record))
    monkeypatch.setattr(gpu_module, "visible_cards", lambda: ["5"])
    return record


def told(record: Path) -> list[str]:
    return [line.split()[0] for line in record.read_text().splitlines()]


def test_mps_is_started_for_ranks_that_share_a_card_and_ended_with_the_lab(record: Path) -> None:
    with Lab(2, loopback=True, gpu=True) as lab:
        mark = mps_mark(lab.name)
        assert len(marked(mark)) == 1
        assert lab.run(["sh", "-c", 'test -d "$CUDA_MPS_PIPE_DIRECTORY"'], timeout_s=60) == 0
    assert told(record) == ["start", "quit"]
    assert marked(mark) == []
    folder = Path(record.read_text().split()[-1])
    assert folder.parent.name.startswith("thinwire-mps-") and not folder.parent.exists()


def test_the_daemon_sees_all_cards(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    with Lab(2, loopback=True, gpu=True):
        pass
    assert record.read_text().startswith("start all\n")


def test_after_a_rank_was_killed_there_is_a_new_server_in_a_new_folder(record: Path) -> None:
    with Lab(2, loopback=True, gpu=True) as lab:
        assert lab.run(["sh", "-c", "kill -9 $$"], timeout_s=60) == 137
        assert lab.run(["true"], timeout_s=60) == 0
    assert told(record) == ["start", "quit", "start", "quit"]
    folders = [line.split()[1] for line in record.read_text().splitlines() if "quit" in line]
    assert folders[0] != folders[1]


KILLED = """
import os, signal
from thinwire.lab import Lab, gpu
gpu.visible_cards = lambda: ["0"]
with Lab(2, loopback=True, gpu=True) as lab:
    lab.start(["sleep", "1000"])
    print(lab.name, lab._share.folder, lab._watcher._process.pid, flush=True)
    signal.pause()
"""


def test_nothing_is_left_of_a_lab_that_was_killed_outright(record: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    name, folder, watcher = process.stdout.readline().split()
    assert len(marked(name)) == 2 and len(marked(mps_mark(name))) == 1
    descriptor = os.pidfd_open(int(watcher))
    process.kill()
    process.wait(timeout=30)
    assert select.select([descriptor], [], [], 60)[0], "the watcher has not ended"
    os.close(descriptor)
    assert marked(name) == [] and marked(mps_mark(name)) == []
    assert told(record) == ["start", "quit"] and not Path(folder).exists()


def test_a_rank_alone_on_its_card_needs_no_mps(record: Path) -> None:
    with Lab(1, loopback=True, gpu=True) as lab:
        assert lab.run(["sh", "-c", 'test "$CUDA_VISIBLE_DEVICES" = 5'], timeout_s=60) == 0
        assert not record.exists()
        assert lab.run(["true"], 2, timeout_s=60) == 0
    assert told(record) == ["start", "quit"]


def test_what_mps_says_when_it_does_not_start_is_passed_on(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUSES", "yes")
    with pytest.raises(LabError, match="status 3: no such luck"), Lab(2, loopback=True, gpu=True):
        pass


def test_without_mps_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu_module, "visible_cards", lambda: ["0"])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match=MPS), Lab(2, loopback=True, gpu=True):
        pass


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_card_it_says_so() -> None:
    with pytest.raises(LabError, match="GPU"), Lab(2, loopback=True, gpu=True):
        pass


def test_ranks_on_cuda_need_a_lab_with_cards() -> None:
    with Lab(2, loopback=True) as lab, pytest.raises(LabError, match="gpu=True"):
        Workers(lab, 2, "support.rank_cases:measure", device="cuda")


@needs_a_card
def test_two_ranks_reduce_over_nccl_on_one_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("THINWIRE_DEADLINE_S", "90")
    with Lab(2, loopback=True, gpu=True) as lab:
        ranks = Workers(lab, 2, "support.rank_cases:measure", device="cuda")
        for number in (1, 2):
            answers = ranks.run({"number": number, "device": "cuda"})
            assert [answer["sum"] for answer in answers] == [2 * number] * 2
