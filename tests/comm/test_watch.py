"""Work that takes too long is given up."""

import threading

from thinwire.comm.watch import Watch


class Waits:
    def __init__(self, over: bool) -> None:
        self.over = over

    def is_completed(self) -> bool:
        return self.over


def test_work_that_never_ends_is_given_up_once() -> None:
    gave_up = threading.Event()
    watch = Watch(0.0, gave_up.set)
    watch.add(Waits(True))
    watch.add(Waits(False))
    assert gave_up.wait(20)
    assert watch.overdue
    watch.close()


def test_work_that_ends_in_time_is_not() -> None:
    watch = Watch(3600.0, lambda: None)
    for _ in range(3):
        watch.add(Waits(True))
    watch.close()
    assert not watch.overdue
    assert watch._thread is not None and not watch._thread.is_alive()


def test_without_work_there_is_no_thread() -> None:
    watch = Watch(0.0, lambda: None)
    watch.close()
    assert watch._thread is None
