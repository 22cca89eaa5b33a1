"""The other end of `rank_main.py`: ranks in a lab, started once, fed with cases, always ended."""

import json
import queue
import subprocess
import sys
import threading
from typing import IO, Literal

from thinwire.errors import LabError, ThinwireError
from thinwire.lab import Lab
from thinwire.lab.rank_main import Case, Message, ReportStep

SILENCE_S = 900.0  # the longest a rank may take for one step
AFTERMATH_S = 5.0  # in which a rank sees that another has failed, or never will
# In errors that another rank's failure causes.
LOST_PEER = ("ExchangeError", "gloo/transport", "DistBackendError")


class WorkerError(ThinwireError):
    """A rank failed, died or fell silent; the text says which and why."""


class CaseError(WorkerError):
    """A case failed on some ranks, and the ranks are ready for the next."""


def ignore_step(note: str = "") -> None:
    """Show no progress."""


class Workers:
    """`with Lab(...) as lab: answers = Workers(lab, 8, "module:function").run(case)`.

    On "cuda", in a lab with `gpu=True`, every rank has set its card, and the group is NCCL's.
    """

    def __init__(
        self, lab: Lab, workers: int, target: str, device: Literal["cpu", "cuda"] = "cpu"
    ) -> None:
        if device == "cuda" and not lab.gpu:
            raise LabError("ranks on cuda need a lab with cards: Lab(..., gpu=True)")
        self._lab, self._workers, self._target, self._device = lab, workers, target, device
        self._start()

    def run(self, case: Case, on_step: ReportStep = ignore_step) -> list[Message]:
        """What every rank answered to the case, in rank order."""
        for rank, process in enumerate(self._processes):
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(case) + "\n")
                process.stdin.flush()
            except OSError:
                raise self._death(rank) from None
        answers = self._collect({"done", "failed"}, on_step)
        failures = {r: a["error"] for r, a in answers.items() if a["kind"] == "failed"}
        # Some wait for a rank that will never come; on a card an error may outlive its case.
        if len(answers) < self._workers or (failures and self._device == "cuda"):
            self._lab.end_processes()
            self._start()
        if failures:
            rank, error = _first_cause(failures)
            raise CaseError(f"rank {rank} failed:\n{error}")
        return [answers[rank] for rank in range(self._workers)]

    def _start(self) -> None:
        argv = [sys.executable, "-m", "thinwire.lab.rank_main", self._target, self._device]
        # A table should not come with one copy of every warning a rank.
        env = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        env["KINETO_LOG_LEVEL"] = "99"  # the profiler tells when it starts and stops
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        per_node = self._workers // len(self._lab.nodes)
        self._processes = self._lab.start(argv, per_node, env=env, **pipes)
        self._messages: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        for rank, process in enumerate(self._processes):
            assert process.stdout is not None
            arguments = (rank, process.stdout, self._messages)
            threading.Thread(target=_read, args=arguments, daemon=True).start()
        self._collect({"ready"}, ignore_step)

    def _collect(self, kinds: set[str], on_step: ReportStep) -> dict[int, Message]:
        """Every rank's answer; once one has failed, of those that answer soon after."""
        answers: dict[int, Message] = {}
        patience = SILENCE_S
        while len(answers) < self._workers:
            try:
                rank, message = self._messages.get(timeout=patience)
            except queue.Empty:
                if patience < SILENCE_S:
                    return answers
                raise WorkerError(f"no word from the ranks for {SILENCE_S:.0f} s") from None
            if message["kind"] == "gone":
                raise self._death(rank)
            if message["kind"] in kinds:
                answers[rank] = message
            else:
                on_step(message["note"])
            if message["kind"] == "failed":
                patience = AFTERMATH_S
        return answers

    def _death(self, rank: int) -> WorkerError:
        status = self._processes[rank].wait()
        return WorkerError(f"rank {rank} died (exit status {status})")


def _read(rank: int, stdout: IO[str], messages: "queue.SimpleQueue[tuple[int, Message]]") -> None:
    for line in stdout:
        messages.put((rank, json.loads(line)))
    messages.put((rank, {"kind": "gone"}))


def _first_cause(failures: dict[int, str]) -> tuple[int, str]:
    """A failure that is not just the sight of another rank's."""
    own = {
        rank: error
        for rank, error in failures.items()
        if not any(sign in error for sign in LOST_PEER)
    }
    return next(iter((own or failures).items()))
