"""Work that takes too long is given up."""

import gc
import threading
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from thinwire.comm import GroupCommunicator
from thinwire.comm.watch import Watch


class Waits:
    def __init__(self, over: bool) -> None:
        self.over = over

    def is_completed(self) -> bool:
        return self.over

    def wait(self) -> None:
        assert self.over


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


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two ranks by a backend that, as NCCL, has no timeout of its own. Its sums, which would never
    be over, are at once.
    """
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    monkeypatch.setattr("thinwire.comm.communicator.own_group", lambda *_: dist.group.WORLD)
    monkeypatch.setattr(dist, "all_reduce", lambda *_, **options: Waits(True))
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("queues")
def test_a_communicator_that_is_dropped_leaves_no_thread() -> None:
    comm = GroupCommunicator()
    comm.all_reduce(torch.ones(3))
    assert comm._watch is not None
    thread = comm._watch._thread
    assert thread is not None and thread.is_alive()
    del comm
    gc.collect()
    thread.join(20)
    assert not thread.is_alive()


def test_what_was_under_way_when_it_was_dropped_is_given_up_all_the_same() -> None:
    gave_up = threading.Event()
    watch = Watch(0.0, gave_up.set)
    watch.add(Waits(False))
    watch.dismiss()
    assert gave_up.wait(20), "a device would wait for ever"
