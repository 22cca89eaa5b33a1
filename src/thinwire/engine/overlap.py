"""Dense allreduces under way together, as PyTorch's own hook has them."""

import time
from dataclasses import dataclass

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
    ended: float = 0.0

    def wait(self) -> None:
        """Return when the sum is there."""
        with exchange_named("Dense", self.unit.spec.name, self.unit.step):
            self.transfer.wait()
        self.ended = self.ended or time.perf_counter()  # the backend may tell a little later

    def note_end(self) -> None:
        """Called by the backend: nobody may be waiting yet."""
        self.ended = time.perf_counter()


class AsyncAllReduces:
    """Those of one step. Gloo works on several at once, and each waits for other ranks in turn."""

    def __init__(self, comm: GroupCommunicator) -> None:
        self.comm = comm
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
        transfer.when_done(begun.note_end)
        self._under_way.append(begun)

    def finish(self) -> None:
        """Wait for all, and turn sums into means."""
        sums, self._under_way = self._under_way, []
        for one in sums:
            one.wait()
        for one in sums:
            one.unit.meter.clock.span(one.unit.meter, "exchange", one.started, one.ended)
            with one.unit.meter.phase("feedback"):
                one.flat.div_(self.comm.size)
                one.unit.unflatten(one.flat, one.grads)
            one.unit.count(one.flat, one.moved, self.comm.size)
