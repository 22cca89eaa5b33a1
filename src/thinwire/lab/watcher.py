"""The process that outlives a lab that was killed, and ends what the lab started.

It runs as a file, `python -P watcher.py MARK FOLDER`, and imports nothing of thinwire. When its
stdin ends, as it does with the lab, it kills what still bears the lab's mark, ends MPS, whose
folders lie in FOLDER, and removes FOLDER ("": there is none).
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

MARK = "THINWIRE_LAB"  # in the environment of all that a lab starts, and of what those start
MPS = "nvidia-cuda-mps-control"
GRACE_S = 10.0  # to end after SIGTERM, which the kernel sends to the ranks of a lab that died
POLL_S = 0.05
ROUNDS = 3
QUIT_S = 5.0  # for MPS to end; one that hangs is killed


def mps_mark(mark: str) -> str:
    """Of the daemon and its servers, which end after the ranks."""
    return f"{mark}-mps"


def mps_places(folder: Path) -> dict[str, str]:
    return {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}


def end_mps(mark: str, folder: Path) -> None:
    """Ask the daemon to end, and kill it and its servers, by their ids, if it does not listen."""
    try:
        subprocess.run(
            [MPS],
            env={**os.environ, **mps_places(folder)},
            input=b"quit\n",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=QUIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass
    finally:
        kill_marked(mps_mark(mark))
        shutil.rmtree(folder, ignore_errors=True)


def kill_marked(mark: str) -> None:
    """Kill all that has a lab's mark, and what those start meanwhile."""
    for _ in range(ROUNDS):  # one that is about to die may still have started another
        for pid in marked(mark):
            _kill(pid)


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


def main(mark: str, folder: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    deadline = time.monotonic() + GRACE_S
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    kill_marked(mark)
    if folder:
        for daemon in Path(folder).iterdir():
            end_mps(mark, daemon)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
