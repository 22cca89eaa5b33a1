"""Brings units through a step: who selects, who exchanges, in which thread."""

from collections.abc import Sequence
from concurrent.futures import Future, wait

from torch import Tensor

from thinwire.comm import GroupCommunicator, Nodes
from thinwire.engine.overlap import AsyncAllReduces
from thinwire.engine.thread import OrderedWorker
from thinwire.pipeline import Prepared
from thinwire.types import StepContext
from thinwire.units.unit import Unit


class Runner:
    """Runs units in order, flat over all ranks, or inside nodes first and then between them."""

    def __init__(self, comm: GroupCommunicator, nodes: Nodes | None, seed: int) -> None:
        self.comm, self.nodes, self.seed = comm, nodes, seed
        self.worker = OrderedWorker()
        self.sums = AsyncAllReduces(comm)

    @property
    def keeps_state(self) -> bool:
        """Whether this rank selects, and so has something to remember."""
        return self.nodes is None or self.nodes.leads

    def run(self, work: Sequence[tuple[Unit, list[Tensor]]]) -> None:
        """One step of each unit, overlapped: this thread selects, the worker exchanges."""
        if len(work) == 1:  # nothing to overlap with, and waking a thread takes time
            self.run_here(*work[0])
            self.finish()
            return
        jobs: list[tuple[Future[None], Prepared | None]] = []
        for unit, grads in work:
            device = unit.spec.device
            if self.nodes is None and not self.sums.takes(unit):
                flat, ctx, prepared = self._prepare(unit, grads)
                job = self.worker.submit(device, self._complete, unit, grads, flat, ctx, prepared)
                jobs.append((job, prepared))  # held until the worker's stream is joined
            else:
                # Sums go through the worker too: one order on every rank.
                jobs.append((self.worker.submit(device, self.run_here, unit, grads), None))
        wait([job for job, _ in jobs])
        self.finish()
        self.worker.join_streams()
        for job, _ in jobs:
            job.result()

    def run_here(self, unit: Unit, grads: list[Tensor]) -> None:
        """One step of one unit in the calling thread. A plain sum is over only after `finish`."""
        if self.nodes is not None:
            self._run_in_nodes(unit, grads, self.nodes)
        elif self.sums.takes(unit):
            self.sums.begin(unit, grads)
        else:
            flat, ctx, prepared = self._prepare(unit, grads)
            self._complete(unit, grads, flat, ctx, prepared)

    def finish(self) -> None:
        """Wait for what is still under way."""
        self.sums.finish()

    def close(self) -> None:
        """End the worker and let go of the process groups."""
        self.worker.close()
        if self.nodes is not None:
            self.nodes.close()
        self.comm.close()

    def _prepare(self, unit: Unit, grads: list[Tensor]) -> tuple[Tensor, StepContext, Prepared]:
        flat = unit.flatten(grads)
        ctx = unit.context(flat, self.seed, self.comm)
        return flat, ctx, unit.pipeline.prepare(flat, unit.state, ctx)

    def _complete(
        self, unit: Unit, grads: list[Tensor], flat: Tensor, ctx: StepContext, prepared: Prepared
    ) -> None:
        before = self.comm.traffic.sent, self.comm.traffic.received
        unit.pipeline.complete(prepared, flat, unit.state, ctx)
        unit.unflatten(flat, grads)
        self._count(unit, prepared, before)

    def _run_in_nodes(self, unit: Unit, grads: list[Tensor], nodes: Nodes) -> None:
        """Sum inside, exchange between the leaders, hand out inside.

        The leader's gradient is the node's sum, so its residual too is a sum over the node, and
        the mean is over all ranks.
        """
        before = self.comm.traffic.sent, self.comm.traffic.received
        flat = unit.flatten(grads)
        summed = flat.to(unit.spec.accumulator)
        with unit.meter.phase("inside"):
            nodes.sum_inside(summed)
        prepared = None
        if nodes.between is not None:
            ctx = unit.context(summed, self.seed, nodes.between, gradients=self.comm.size)
            prepared = unit.pipeline.prepare(summed, unit.state, ctx)
            unit.pipeline.complete(prepared, summed, unit.state, ctx)
        with unit.meter.phase("inside"):
            nodes.hand_out(summed)
        if summed is not flat:
            flat.copy_(summed)
        unit.unflatten(flat, grads)
        self._count(unit, prepared, before)

    def _count(self, unit: Unit, prepared: Prepared | None, before: tuple[int, int]) -> None:
        traffic = self.comm.traffic
        sent, received = traffic.sent - before[0], traffic.received - before[1]
        unit.count(prepared, sent, received, self.comm.size)
