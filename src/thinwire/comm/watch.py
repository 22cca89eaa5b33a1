"""A limit for waits that a device does: the host is asleep in them, and NCCL waits for ever."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import torch

POLL_S = 0.05


class Work(Protocol):
    """What a backend has under way."""

    def is_completed(self) -> bool:
        """Whether it is over."""


class Queued:
    """All that a stream has before an event."""

    def __init__(self, end: torch.cuda.Event) -> None:
        self.is_completed = end.query


class Watch:
    """Gives up a group in which something takes longer than the limit; its waits then end.

    One thread for a communicator, started with the first work and ended by `close`; or by
    `dismiss`, where nobody closes. `give_up` is held for as long as the thread lives, so it may not
    hold the communicator.
    """

    def __init__(self, limit_s: float, give_up: Callable[[], None]) -> None:
        self.limit_s, self._give_up = limit_s, give_up
        self.overdue = False
        self._under_way: deque[tuple[float, Work]] = deque()
        self._closed = threading.Event()
        self._dismissed = False
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

    def dismiss(self) -> None:
        """Nothing more will come: end the thread once all that is under way is over.

        Without a wait, since any thread may collect garbage. Until then somebody may still wait
        for what a device has under way.
        """
        self._dismissed = True

    def _look(self) -> None:
        while not self._closed.wait(POLL_S):
            while self._under_way and self._under_way[0][1].is_completed():
                self._under_way.popleft()
            if self._under_way and time.monotonic() > self._under_way[0][0]:
                self.overdue = True
                self._give_up()
                return
            if self._dismissed and not self._under_way:
                return
