"""Ranks in a lab: answers in order, and errors that say which rank failed or died."""

import os
import signal
import sys

import pytest

from thinwire.lab import Lab
from thinwire.lab.ranks import CaseError, WorkerError, Workers

TARGET = "support.rank_cases:measure"


@pytest.fixture(autouse=True)
def _ranks_find_the_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def test_every_rank_answers_in_order_and_the_first_reports_its_steps() -> None:
    notes: list[str] = []

    def note_step(note: str = "") -> None:
        notes.append(note)

    with Lab(2, loopback=True) as lab:
        ranks = Workers(lab, 2, TARGET)
        for number in (1, 2):
            answers = ranks.run({"number": number}, note_step)
            assert [answer["sum"] for answer in answers] == [2 * number] * 2
            assert [answer["rank"] for answer in answers] == [0, 1]
    assert notes == ["step of 1", "step of 2"]


def test_a_rank_that_fails_is_named_and_all_are_ready_for_the_next_case() -> None:
    with Lab(2, loopback=True) as lab:
        ranks = Workers(lab, 2, TARGET)
        with pytest.raises(CaseError, match=r"(?s)rank 1 failed.*this one fails"):
            ranks.run({"number": 1, "fails": 1})
        assert [answer["sum"] for answer in ranks.run({"number": 3})] == [6, 6]


def test_a_rank_that_dies_is_named() -> None:
    with Lab(1, loopback=True) as lab:
        ranks = Workers(lab, 1, TARGET)
        pid = ranks.run({"number": 1})[0]["pid"]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="rank 0 died"):
            ranks.run({"number": 1})


def test_a_rank_past_its_deadline_says_where_it_is_and_ends(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THINWIRE_DEADLINE_S", "5")
    with Lab(1, loopback=True) as lab:
        ranks = Workers(lab, 1, TARGET)
        assert ranks.run({"number": 1})[0]["sum"] == 1
        with pytest.raises(WorkerError, match="rank 0 died"):
            ranks.run({"number": 1, "hangs": True})
    assert "rank_cases.py" in capfd.readouterr().err
