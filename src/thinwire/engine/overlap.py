"""Dense allreduces under way together, as PyTorch's own hook has them."""

import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue

import torch.distributed as dist
from torch import Tensor

from thinwire.comm import GroupCommunicator, Traffic, Transfer
from thinwire.errors import exchange_named
from thinwire.units.unit import Unit


@dataclass(slots=True)
class AsyncAllReduce:
    """One unit's allreduce."""

    unit: Unit
    grads: list[Tensor]
    flat: Tensor
    transfer: Transfer
    moved: Traffic
    started: float
    ended: list[float] = field(default_factory=list)  # one number, once it is over

    def wait(self) -> None:
        """Return when the sum is there."""
        with exchange_named("Dense", self.unit.spec.name, self.unit.step):
            self.transfer.wait()
        self.ended.append(time.perf_counter())  # what was noted before it counts, if anything was


class Ends:
    """Notes when sums end: nobody may be waiting for them yet. One thread, from the first sum on.

    The backend would call us back, but in a thread of the group's own. Whatever Python does there,
    and be it to collect garbage, may drop the last reference to that group, whose end waits for
    all its threads: "Resource deadlock avoided", and the process is aborted.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[dist.Work, list[float]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._queue.put, None).atexit = False

    def note(self, works: list[dist.Work], ended: list[float]) -> None:
        """Append the moment when the last of these works is over; sums are looked at in order."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=_look_on, args=(self._queue,), name="thinwire-sums", daemon=True
            )
            self._thread.start()
        for work in works:
            self._queue.put((work, ended))

    def close(self) -> None:
        """End the thread, after what is under way."""
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join()


def _look_on(queue: SimpleQueue[tuple[dist.Work, list[float]] | None]) -> None:
    """The thread knows nothing but this queue: what is dropped meanwhile is not held by it."""
    while (one := queue.get()) is not None:
        work, ended = one
        with suppress(RuntimeError):  # it is told to whoever waits for the sum
            work.wait()
        ended.append(time.perf_counter())
        del one, work, ended  # not until the next one


class AsyncAllReduces:
    """Those of one step. Gloo works on several at once, and each waits for other ranks in turn."""

    def __init__(self, comm: GroupCommunicator) -> None:
        self.comm, self._ends = comm, Ends()
        self._under_way: list[AsyncAllReduce] = []

    def takes(self, unit: Unit) -> bool:
        """Whether the unit's step is such a sum, in host memory: a device has its streams."""
        if not unit.pipeline.is_plain_sum or unit.spec.device.type != "cpu":
            return False
        return unit.spec.dtype == unit.spec.accumulator

    def begin(self, unit: Unit, grads: list[Tensor]) -> None:
        """Send a unit's gradients on their way; they must not be touched before `finish`."""
        flat, before = unit.flatten(grads), self.comm.traffic.now()
        started = time.perf_counter()
        transfer = self.comm.start_all_reduce(flat)
        moved = self.comm.traffic.since(before)
        begun = AsyncAllReduce(unit, grads, flat, transfer, moved, started)
        self._ends.note(transfer.works, begun.ended)
        self._under_way.append(begun)

    def finish(self) -> None:
        """Wait for all, and turn sums into means."""
        for one in self._under_way:
            one.wait()
        sums, self._under_way = self._under_way, []
        for one in sums:
            one.unit.meter.clock.span(one.unit.meter, "exchange", one.started, one.ended[0])
            with one.unit.meter.phase("feedback"):
                one.flat.div_(self.comm.size)
                one.unit.unflatten(one.flat, one.grads)
            one.unit.count(one.flat, one.moved, self.comm.size)

    def abandon(self) -> None:
        """Wait until all ended, in a group that was given up: their memory is in use till then."""
        sums, self._under_way = self._under_way, []
        for one in sums:
            one.transfer.settle()

    def close(self) -> None:
        """End the thread that looks on."""
        self._ends.close()
