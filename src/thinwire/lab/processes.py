"""Processes that are ours to end: each by its id, none by its name."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from thinwire.errors import LabError
from thinwire.lab import watcher
from thinwire.lab.watcher import GRACE_S, MARK, POLL_S, kill_marked

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None

Process = subprocess.Popen[str]
Stream = int | IO[str] | None


def start(
    argv: Sequence[str],
    env: Mapping[str, str],
    mark: str,
    enter: Callable[[], None] | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
) -> Process:
    """Start a process in a session of its own, so that Ctrl-C reaches the lab alone.

    It calls `enter` before it becomes the program.
    """

    def begin() -> None:
        if enter is not None:
            enter()
        _follow_the_parent()

    try:
        return subprocess.Popen(
            argv,
            env={**os.environ, **env, MARK: mark},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
            preexec_fn=begin,
        )
    except FileNotFoundError:
        raise LabError(f"there is no program {argv[0]!r}") from None


def _follow_the_parent() -> None:
    """Ask the kernel to end this process should the lab be killed outright."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def wait_all(processes: Sequence[Process], timeout_s: float | None = None) -> int:
    """Zero once all have ended well; else, at once, the status of the first that did not."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        statuses = [process.poll() for process in processes]
        failure = next(filter(None, statuses), None)
        if failure is not None:
            return failure if failure > 0 else 128 - failure  # as a shell counts signals
        if None not in statuses:
            return 0
        if deadline is not None and time.monotonic() > deadline:
            raise LabError(f"the command did not end within {timeout_s:g} s")
        time.sleep(POLL_S)


def end(processes: Sequence[Process], mark: str) -> None:
    """End what still runs: first kindly, then not; last what has a session of its own."""
    _signal(processes, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    for process in processes:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal([process], signal.SIGKILL)
            process.wait()
    kill_marked(mark)


def _signal(processes: Sequence[Process], number: int) -> None:
    for process in processes:
        if process.poll() is None:  # else the id may be another's by now
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                continue


class Watcher:
    """Ends what bears the mark should this process be killed outright, and MPS in `folder`."""

    def __init__(self, mark: str, folder: Path | None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", watcher.__file__, mark, "" if folder is None else str(folder)],
            stdin=subprocess.PIPE,  # it ends with this process
            start_new_session=True,
        )

    def close(self) -> None:
        """Nothing is left to end; the folder is removed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
