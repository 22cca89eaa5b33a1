"""Who ends a program does not wait until the timeout for a message that may never come."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakSet


class Patience:
    """With what is under way, until somebody interrupts a wait for it, or the program breaks off.

    Until then who was interrupted may go on, or save what has arrived. Threads are joined when the
    interpreter ends, and one that waits for a silent peer would be waited for.
    """

    def __init__(self, give_up: Callable[[str], object]) -> None:
        """`give_up` tells all peers, and ends this rank's waits."""
        self._give_up, self._interrupted = give_up, False
        _all.add(self)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A wait that Ctrl-C may end."""
        try:
            yield
        except KeyboardInterrupt:
            self._interrupted = True
            raise

    def end(self, broke_off: bool = False) -> None:
        """Let all that is under way go, if this is because of an interruption."""
        if self._interrupted or broke_off:
            self._give_up("it was interrupted")


_all = WeakSet[Patience]()


def _end_all() -> None:
    for patience in tuple(_all):
        patience.end(broke_off=hasattr(sys, "last_type"))  # an exception that nobody caught


threading._register_atexit(_end_all)  # type: ignore[attr-defined]  # atexit's come after the joins
