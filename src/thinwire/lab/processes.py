"""Processes that are ours to end: each by its id, none by its name."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from thinwire.errors import LabError

MARK = "THINWIRE_LAB"  # in the environment of all that a lab starts, and of what those start
GRACE_S = 10.0  # to end after SIGTERM
POLL_S = 0.05
ROUNDS = 3
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None

Process = subprocess.Popen[str]
Stream = int | IO[str] | None


def start(
    argv: Sequence[str],
    env: Mapping[str, str],
    mark: str,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
) -> Process:
    """Start a process in a session of its own, so that Ctrl-C reaches the lab alone."""
    try:
        return subprocess.Popen(
            argv,
            env={**os.environ, **env, MARK: mark},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
            preexec_fn=_follow_the_parent,
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


def kill_marked(mark: str) -> None:
    """Kill all that has a lab's mark, and what those start meanwhile."""
    for _ in range(ROUNDS):  # one that is about to die may still have started another
        for pid in marked(mark):
            _kill(pid)


def _kill(pid: int) -> None:
    """Kill a process and wait for its end; it need not be a child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        select.select([descriptor], [], [], GRACE_S)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def _signal(processes: Sequence[Process], number: int) -> None:
    for process in processes:
        if process.poll() is None:  # else the id may be another's by now
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                continue


def marked(mark: str) -> list[int]:
    """Processes with a lab's mark in their environment: torchrun's workers, say."""
    wanted = f"{MARK}={mark}".encode()
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in path.read_bytes().split(b"\0"):
                pids.append(int(path.parent.name))
        except OSError:
            continue  # gone, or another user's
    return pids
