"""A unit's step on a GPU, recorded once: from then on the host launches a few graphs, where it had
to launch a hundred kernels.

A selection is a chain of short kernels, and launching one takes the host longer than the device
needs for it: `topk` on GPT-2, in 14 units, kept the host busy for 50 ms a step, and does so for 7
when it is replayed. Between the exchanges of a step nothing depends on the host, so what is
launched there is recorded as a CUDA graph. The exchanges are not: NCCL is called as always.
"""

import gc
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import profiler

from thinwire.kernels.kept import held
from thinwire.pipeline import Pipeline, PipelineState
from thinwire.types import Communicator, Selection, Sparse, StepContext
from thinwire.units.unit import Unit

Exchange = Callable[[Callable[[], object]], Iterable[object]]
"""Begins an exchange. What comes of it stops for as long as others may go first."""
Number = tuple[Tensor, Callable[[int], int]]
Told = tuple[Tensor, Callable[[int], None]]
MOST = 32  # numbers of a step that it is told, or that are told of it


@dataclass(frozen=True, slots=True)
class Part:
    """Of a step: a graph, named by the phase that it begins with, or a call that exchanges."""

    phase: str
    launch: Callable[[], object]
    exchanges: bool = False

    def __call__(self) -> None:
        with _shown(self.phase):
            self.launch()


@dataclass(frozen=True, slots=True)
class Recording:
    """What a step launches: graphs, and between them calls that exchange.

    `key`: what it was recorded for. `numbers` are written before, for the step that it is; `told`
    are on their way to the host afterwards. `selection` is of the right size, without memory. What
    is `held` lies on the device, where the graphs read it.
    """

    key: Hashable
    parts: tuple[Part, ...]
    numbers: tuple[Number, ...]
    told: tuple[Told, ...]
    selection: Selection
    held: tuple[object, ...]

    def launches(self, step: int, exchange: Exchange) -> Iterator[object]:
        """Launch all of it on the caller's stream; it stops where `exchange` does."""
        for number, by_step in self.numbers:
            number.fill_(by_step(step))
        for part in self.parts:
            if part.exchanges:
                yield from exchange(part)
            else:
                part()


def at_once(exchange: Callable[[], object]) -> Iterable[object]:
    """On the caller's stream, which waits for it."""
    exchange()
    return ()


class Recordings:
    """The recordings of a synchroniser's units.

    A step is recorded when it is over, and the backward pass too: a recording runs nothing and
    sends nothing, so the ranks need not meet for it. All graphs of a place share the memory of what
    they need only in between: of the units there one is over before the next begins. Not `wanted`,
    nothing is recorded.
    """

    def __init__(self, wanted: bool = True) -> None:
        self._due: list[tuple[Unit, Tensor, int]] = []
        self._pools: dict[tuple[torch.device, int], _Pool] = {}
        self._wanted = wanted

    def find(self, unit: Unit, flat: Tensor, place: int) -> Recording | None:
        """Of a step like the unit's next one, on this gradient and at this place.

        If there is none, and the step before was like this one, the next is recorded by `record`.
        """
        key = _key(unit, flat, place) if self._wanted else None
        if key is None:
            return None
        recording: Recording | None = unit.recording
        if recording is not None and recording.key == key:
            return recording
        unit.recording = None
        if unit.launched == key:
            self._due.append((unit, flat, place))
        unit.launched = key
        return None

    def record(self, context: Callable[[Unit], StepContext]) -> None:
        """Record the next steps of units whose last ones were alike; `context` makes that of one.

        It is not kept: whoever drops a synchroniser wants its sockets closed at once.
        """
        due, self._due = self._due, []
        for unit, flat, place in due:
            if self._wanted and _key(unit, flat, place) == unit.launched:
                try:
                    unit.recording = self._recorded(unit, flat, place, context(unit))
                except RuntimeError as error:  # nothing has run: all goes on as before
                    self._wanted = False
                    warnings.warn(
                        f"steps of {unit.spec.name} cannot be recorded: {error}", stacklevel=2
                    )

    def forget(self) -> None:
        """The step broke off."""
        self._due = []

    def _recorded(self, unit: Unit, flat: Tensor, place: int, ctx: StepContext) -> Recording:
        device, key = unit.spec.device, _key(unit, flat, place)
        if (device, place) not in self._pools:
            self._pools[device, place] = _Pool(device)
        pool = self._pools[device, place]
        recorder = Recorder(ctx.comm, pool.handle, device)
        ctx = recorder.takes_part(ctx)
        # A graph that is dropped may not come to its end while another is recorded.
        with (
            _no_collection(), torch.cuda.device(device), torch.cuda.stream(pool.stream), recorder,
            held() as read,
        ):  # fmt: skip
            prepared = unit.pipeline.prepare(flat, unit.state, ctx)
            unit.pipeline.complete(prepared, flat, unit.state, ctx)
        assert _key(unit, flat, place) == key, (
            f"{unit.pipeline!r} keeps its state elsewhere after a step"
        )
        return recorder.recording(key, _without_memory(prepared.selection), tuple(read))


class _Pool:
    """Memory that graphs share. An empty one holds it while there is no other.

    They are recorded on one stream, since cuBLAS has a workspace for each stream: graphs of two
    places, which may run at the same time, must not have the same.
    """

    def __init__(self, device: torch.device) -> None:
        self.handle: Any = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream(device)
        self._holder = torch.cuda.CUDAGraph()
        with warnings.catch_warnings(), torch.cuda.stream(self.stream):
            warnings.simplefilter("ignore")  # that it is empty
            self._holder.capture_begin(self.handle, capture_error_mode="thread_local")
            self._holder.capture_end()


class Recorder:
    """Stands in for the communicator: each exchange ends one graph and begins the next."""

    def __init__(self, comm: Communicator, pool: Any, device: torch.device) -> None:
        self.rank, self.size = comm.rank, comm.size
        self._comm, self._pool = comm, pool
        self._parts: list[Part] = []
        self._phase: str | None = None  # that the graph began with
        # Not in the graphs' memory, which others use before and after.
        self._room: list[Tensor] = list(torch.empty(MOST, dtype=torch.int64, device=device))
        self._numbers: list[Number] = []
        self._told: list[Told] = []

    def takes_part(self, ctx: StepContext) -> StepContext:
        """The context of a step that is recorded: nothing of it is timed."""
        return replace(
            ctx,
            comm=cast(Communicator, self),
            later=self._later,
            keep_number=self._keep_number,
            phase=self._begins,
        )

    def recording(self, key: Hashable, selection: Selection, held: tuple[object, ...]) -> Recording:
        """What was recorded; nothing of it is held here any longer, where its numbers lead."""
        parts, numbers, told = tuple(self._parts), tuple(self._numbers), tuple(self._told)
        self._parts, self._numbers, self._told = [], [], []
        return Recording(key, parts, numbers, told, selection, held)

    def __enter__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()
        # Other threads, those of the backward pass among them, may do what they like meanwhile.
        self._graph.capture_begin(self._pool, capture_error_mode="thread_local")

    def __exit__(self, *error: object) -> None:
        self._graph.capture_end()
        self._parts.append(Part(self._phase or "other", self._graph.replay))
        self._phase = None

    def all_reduce(self, tensor: Tensor) -> Tensor:
        self._exchange(partial(self._comm.all_reduce, tensor))
        return tensor

    def all_gather_equal(self, tensor: Tensor) -> Tensor:
        if self.size == 1:
            return self._comm.all_gather_equal(tensor)
        rows = tensor.new_empty(self.size, tensor.numel())
        self._exchange(partial(self._comm.all_gather_equal, tensor, rows))
        return rows

    def all_to_all_equal(self, rows: Tensor) -> Tensor:
        if self.size == 1:
            return rows
        arrived = torch.empty_like(rows)
        self._exchange(partial(self._comm.all_to_all_equal, rows, arrived))
        return arrived

    def _exchange(self, call: Callable[[], Tensor]) -> None:
        self.__exit__()
        self._parts.append(Part("exchange", call, exchanges=True))
        self.__enter__()

    def _begins(self, phase: str) -> AbstractContextManager[None]:
        self._phase = self._phase or phase
        return nullcontext()

    def _later(self, number: Tensor, then: Callable[[int], None]) -> None:
        self._told.append((self._room.pop().copy_(number.view(())), then))

    def _keep_number(self, by_step: Callable[[int], int], device: torch.device) -> Tensor:
        number = self._room.pop()
        self._numbers.append((number, by_step))
        return number


@contextmanager
def _no_collection() -> Iterator[None]:
    """Objects that hold each other live on for now."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _shown(phase: str) -> AbstractContextManager[object]:
    """To PyTorch's profiler, where there is one."""
    shows = profiler._is_profiler_enabled
    return profiler.record_function(f"thinwire::{phase}") if shows else nullcontext()


def launches_of(pipeline: Pipeline, state: PipelineState, step: int) -> Hashable | None:
    """What the launches of a steady step depend on, beside sizes; None: they differ by step."""
    keys = [
        pipeline.sparsifier.replays(state["sparsifier"], step),
        () if pipeline.codec is None else pipeline.codec.replays({}, step),
        pipeline.collective.replays(state["collective"], step),
        pipeline.feedback.replays(state["feedback"], step),
    ]
    return None if None in keys else (pipeline.density_at(step), *keys)


def _key(unit: Unit, flat: Tensor, place: int) -> Hashable | None:
    """What a recording is good for: one pipeline and place, and where gradient and state lie."""
    launches = launches_of(unit.pipeline, unit.state, unit.step)
    if launches is None:
        return None
    state = (
        (id(own), *((key, value.data_ptr()) for key, value in own.items() if value.is_cuda))
        for own in unit.state.values()
    )
    return unit.pipeline, launches, place, flat.data_ptr(), *state


def _without_memory(selection: Selection) -> Selection:
    if not isinstance(selection, Sparse):
        return selection.to("meta")
    indices, values = selection.indices.to("meta"), selection.values.to("meta")
    return replace(selection, indices=indices, values=values)
