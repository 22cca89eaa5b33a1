"""A limit for waits that a device does: the host is asleep in them, and NCCL waits for ever."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

POLL_S = 0.05


class Work(Protocol):
    """What a backend has under way."""

    def is_completed(self) -> bool:
        """Whether it is over."""


class Watch:
    """Gives up a group in which something takes longer than the limit; its waits then end.

    One thread for a communicator, started with the first work and ended by `close`.
    """

    def __init__(self, limit_s: float, give_up: Callable[[], None]) -> None:
        self.limit_s, self._give_up = limit_s, give_up
        self.overdue = False
        self._under_way: deque[tuple[float, Work]] = deque()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, work: Work) -> None:
        """Work that was begun just now, behind all before it."""
        self._under_way.append((time.monotonic() + self.limit_s, work))
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="thinwire-watch", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        while not self._closed.wait(POLL_S):
            while self._under_way and self._under_way[0][1].is_completed():
                self._under_way.popleft()
            if self._under_way and time.monotonic() > self._under_way[0][0]:
                self.overdue = True
                self._give_up()
                return
