"""Ranks on one machine compile a kernel once: the first does it, and the others load what it made.

Numba looks for a kernel on disk after it has taken its own lock, and writes it there before it
gives the lock back; a lock that all processes share, taken around it, is all that is missing.
"""

import fcntl
import os
import tempfile
import threading
import time
import zlib
from pathlib import Path
from typing import Any

from numba import config
from numba.core import event

PATIENCE_S = 120.0  # then compiled here too: nobody waits for a process that is stuck
POLL_S = 0.02


class Turns(event.Listener):  # type: ignore[misc]
    """Holds the lock in `path` while this process compiles or loads."""

    def __init__(self, path: Path, patience_s: float = PATIENCE_S) -> None:
        self._path, self._patience = path, patience_s
        self._guard, self._depth = threading.Lock(), 0
        self._lock: int | None = None

    def on_start(self, event: Any) -> None:
        with self._guard:  # a second thread waits here for the process's turn
            if self._depth == 0:
                self._lock = self._take()
            self._depth += 1

    def on_end(self, event: Any) -> None:
        with self._guard:
            self._depth -= 1
            if self._depth == 0 and self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _take(self) -> int | None:
        """Open for as long as the lock is held; None where there can be none."""
        try:
            lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except OSError:
                time.sleep(POLL_S)
        os.close(lock)
        return None


def compile_once() -> None:
    """For all kernels of this process, from now on; with those that share its cache."""
    cache = zlib.crc32(f"{config.CACHE_DIR}:{__file__}".encode())
    name = f"thinwire-compiles-{os.getuid()}-{cache:08x}.lock"
    event.register("numba:compiler_lock", Turns(Path(tempfile.gettempdir()) / name))
