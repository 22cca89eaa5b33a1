"""One step of one unit: flat over all ranks, or inside nodes first and then between them."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial

from torch import Tensor

from thinwire.comm import GroupCommunicator, Nodes, Traffic
from thinwire.engine.conveyor import Conveyor
from thinwire.engine.lanes import StreamLanes
from thinwire.engine.overlap import AsyncAllReduces
from thinwire.engine.readback import Readback
from thinwire.engine.recording import Exchange, Recording, Recordings, at_once
from thinwire.engine.series import Series
from thinwire.engine.thread import OrderedWorker
from thinwire.errors import exchange_named
from thinwire.types import Selection, Sparse, StepContext, accumulator
from thinwire.units.rows import RowUnit, from_coo, to_coo
from thinwire.units.unit import Unit

Job = Callable[[], None]


class StepRunner:
    """Brings units through a step: one, or several overlapped; `finish` waits for plain sums."""

    def __init__(
        self, comm: GroupCommunicator, nodes: Nodes | None, seed: int, replay: bool = True
    ) -> None:
        self.comm, self.nodes, self.seed = comm, nodes, seed
        self.worker = OrderedWorker()
        self.sums = AsyncAllReduces(comm)
        self.lanes = StreamLanes(comm)
        self.conveyor = Conveyor()
        self.readback = Readback(comm)
        self.recordings = Recordings(replay)
        self.series = Series()
        self.found_bad = False  # some rank's gradient was not finite, in a steady step

    @property
    def keeps_state(self) -> bool:
        """Whether this rank selects, and so has something to remember."""
        return self.nodes is None or self.nodes.leads

    def run(self, unit: Unit, grads: list[Tensor]) -> None:
        """One step of one unit in the calling thread; it is over only after `finish`."""
        collective, steady = unit.pipeline.collective, self.is_steady(unit)
        if steady and collective.in_one_round:
            self.lanes.join()
            self._run_in_turn(unit, grads)
            return
        self.conveyor.drain()
        if steady and collective.in_two_rounds and unit.spec.device.type == "cuda":
            with self.lanes.take(unit.spec.device) as lane:
                self._run_on_stream(unit, grads, lane)
            return
        self.lanes.join()
        if steady:
            self._run_on_stream(unit, grads)
        else:
            self._begin(unit, grads)()

    def is_steady(self, unit: Unit) -> bool:
        """Whether the unit's step asks the host nothing: then it is queued, whoever calls."""
        return self.nodes is None and unit.pipeline.is_steady(unit.spec.device)

    def run_overlapped(self, work: Sequence[tuple[Unit, list[Tensor]]]) -> None:
        """One step of each unit: this thread selects, the worker exchanges, in this order."""
        if all(self.is_steady(unit) for unit, _ in work):
            for unit, grads in work:
                self.run(unit, grads)
            return
        if len(work) == 1:  # nothing to overlap with, and waking a thread takes time
            self.run(*work[0])
            return
        jobs: list[tuple[Future[None], Job]] = []  # jobs are held until the streams are joined
        try:
            for unit, grads in work:
                job = self._begin(unit, grads)
                jobs.append((self.worker.submit(unit.spec.device, job), job))
            wait([future for future, _ in jobs])
        except BaseException as error:  # the step will be undone: none may still change a state
            self.give_up(f"{type(error).__name__}: {error}")
            wait([future for future, _ in jobs])
            raise
        self.worker.join_streams()
        for future, _ in jobs:
            future.result()

    def average_rows(self, unit: RowUnit, grad: Tensor) -> Tensor:
        """The mean of a COO gradient over the ranks, as a new coalesced COO tensor.

        Nothing is selected, pruned or rounded, except that a sketch stays one.
        """
        before = self.comm.traffic.now()
        coo = grad.coalesce()
        mine = from_coo(coo.to(accumulator(coo.dtype)))
        rows = unit.sum(mine, unit.context(self.seed, self.comm), self.nodes)
        mean = to_coo(Sparse(rows.indices, rows.values / self.comm.size, rows.numel), coo)
        self._count(unit, mine, before)
        return mean.to(coo.dtype)

    def finish(self) -> None:
        """Wait for what is still under way."""
        self.sums.finish()
        self.conveyor.finish()
        self.lanes.join()
        self.readback.read()
        self.recordings.record(self._steady_context)

    def abandon(self) -> None:
        """As `finish`, for a step that is taken back: nothing may stay under way."""
        self.sums.abandon()
        self.conveyor.abandon()
        self.lanes.join()
        self.recordings.forget()

    def give_up(self, why: str) -> None:
        """Exchange nothing any more: the ranks are no longer in step with each other."""
        self.comm.give_up(why)
        if self.nodes is not None:
            self.nodes.give_up(why)

    def close(self) -> None:
        """End the threads and let go of the nodes' groups."""
        self.worker.close()
        self.sums.close()
        if self.nodes is not None:
            self.nodes.close()

    def _run_in_turn(self, unit: Unit, grads: list[Tensor]) -> None:
        """A step that asks the host nothing; from a recording, side by side with other units'."""
        place, flat = self.conveyor.place(), unit.flatten(grads)
        recording = self._recording(unit, flat, place)
        if recording is None:
            self.conveyor.drain()
            self._launch(unit, flat, grads)
        else:
            beside = partial(self.conveyor.beside, unit.spec.device)
            self.conveyor.add(self._replay(recording, unit, flat, grads, beside))

    def _run_on_stream(self, unit: Unit, grads: list[Tensor], lane: int = 0) -> None:
        """The same on the caller's stream alone, which may be that of a lane."""
        flat = unit.flatten(grads)
        recording = self._recording(unit, flat, lane)
        if recording is None:
            self._launch(unit, flat, grads)
        else:
            deque(self._replay(recording, unit, flat, grads, at_once), maxlen=0)

    def _recording(self, unit: Unit, flat: Tensor, place: int) -> Recording | None:
        """Steps whose phases are timed are launched kernel by kernel."""
        timed = unit.meter.clock.times(unit.spec.device)
        return None if timed else self.recordings.find(unit, flat, place)

    def _replay(
        self, recording: Recording, unit: Unit, flat: Tensor, grads: list[Tensor], how: Exchange
    ) -> Iterator[object]:
        """A step from its recording, which stops where its exchanges do."""
        moved = Traffic()

        def counted(exchange: Callable[[], object]) -> None:
            before = self.comm.traffic.now()
            exchange()
            own = self.comm.traffic.since(before)
            moved.count(own.sent, own.received)

        with exchange_named(type(unit.pipeline.collective).__name__, unit.spec.name, unit.step):
            yield from recording.launches(unit.step, lambda call: how(partial(counted, call)))
        for number, then in recording.told:
            self.readback.later(number, then)
        unit.unflatten(flat, grads)
        unit.count(recording.selection, moved, self.comm.size)

    def _launch(self, unit: Unit, flat: Tensor, grads: list[Tensor]) -> None:
        """A step, kernel by kernel."""
        before, ctx = self.comm.traffic.now(), self._steady_context(unit)
        prepared = unit.pipeline.prepare(flat, unit.state, ctx)
        unit.pipeline.complete(prepared, flat, unit.state, ctx)
        unit.unflatten(flat, grads)
        self._count(unit, prepared.selection, before)

    def _steady_context(self, unit: Unit) -> StepContext:
        return unit.context(
            self.seed,
            self.comm,
            steady=True,
            bad=unit.bad,
            note_bad=self._note_bad,
            later=self.readback.later,
        )

    def _note_bad(self, found: int) -> None:
        self.found_bad |= bool(found)

    def _begin(self, unit: Unit, grads: list[Tensor]) -> Job:
        """Do what needs no network; what is left goes to the network in one order on all ranks."""
        if self.nodes is not None:
            return partial(self._run_in_nodes, unit, grads, self.nodes)
        if self.sums.takes(unit):
            return partial(self.sums.begin, unit, grads)
        flat = unit.flatten(grads)
        ctx = unit.context(self.seed, self.comm, record=self.series.add)
        prepared = unit.pipeline.prepare(flat, unit.state, ctx)

        def complete() -> None:
            before = self.comm.traffic.now()
            unit.pipeline.complete(prepared, flat, unit.state, ctx)
            unit.unflatten(flat, grads)
            self._count(unit, prepared.selection, before)

        return complete

    def _run_in_nodes(self, unit: Unit, grads: list[Tensor], nodes: Nodes) -> None:
        """Sum inside, exchange between the leaders, hand out inside.

        The leader's gradient is the node's sum, so its residual too is a sum over the node, and
        the mean is over all ranks.
        """
        before = self.comm.traffic.now()
        flat = unit.flatten(grads)
        summed = flat.to(unit.spec.accumulator)
        with unit.meter.phase("inside"):
            nodes.sum_inside(summed)
        selection = None
        if nodes.between is not None:
            ctx = unit.context(self.seed, nodes.between, record=self.series.add)
            prepared = unit.pipeline.prepare(summed, unit.state, ctx)
            selection = prepared.selection
            # A node's step is one, however many gradients it was made from.
            count = nodes.between.size if unit.pipeline.feedback.is_step else self.comm.size
            unit.pipeline.complete(prepared, summed, unit.state, ctx, gradients=count)
        with unit.meter.phase("inside"):
            nodes.hand_out(summed)
        if summed is not flat:
            flat.copy_(summed)
        unit.unflatten(flat, grads)
        self._count(unit, selection, before)

    def _count(self, unit: Unit | RowUnit, selection: Selection | None, before: Traffic) -> None:
        unit.count(selection, self.comm.traffic.since(before), self.comm.size)
