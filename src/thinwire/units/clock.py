"""When the phases of a step ran: by the host's clock, or by events on a device's streams.

Units overlap: one selects while another's bytes are under way. What several phases cover at once
is shared out among them, so that all of them add up to no more than the step took.
"""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import local
from typing import Any, Protocol

import torch
from torch.autograd import profiler

from thinwire.kernels.compilations import compilations

ALL_UP_TO, EVERY = 20, 50  # on a device: the first steps of a kind are timed, then one in 50
MEETING = "exchange"  # the phase of every wait for a peer, whatever it is waited for
_NOTHING: AbstractContextManager[None] = nullcontext()


class Booked(Protocol):
    """What phases are timed for: a unit's meter."""

    device: torch.device
    weight: int

    @property
    def fresh(self) -> bool:
        """Whether this is one of the first steps."""

    def book(self, seconds: Mapping[str, float], apart: bool) -> None:
        """Enter the seconds of one step, by phase; those of a first step are kept apart."""


Mark = Any
"""A moment: seconds of the host's clock, or an event of a device."""


@dataclass(slots=True)
class Piece:
    """A part of a phase in which nothing else was begun inside of it."""

    meter: Booked | None  # None: a meeting that is no unit's alone
    phase: str
    start: Mark
    end: Mark = None
    fresh: bool = False


@dataclass(slots=True)
class Timed:
    """The pieces of one step by device, and whether something was compiled or grew in it."""

    pieces: defaultdict[torch.device, list[Piece]] = field(
        default_factory=lambda: defaultdict(list)
    )
    meters: dict[int, Booked] = field(default_factory=dict)
    disturbed: bool = False


class StepClock:
    """The clock of a synchroniser. It never waits for a device, unless it is asked to.

    Events are kept and used again: making one costs more than recording it.
    """

    def __init__(self) -> None:
        self.timing = True  # whether this step's phases are timed on devices too
        self._steps: Counter[Hashable] = Counter()
        self._now, self._in_step = Timed(), False
        self._pending: deque[Timed] = deque()
        self._device = torch.device("cpu")  # of the last phase
        self._before = self._state()
        self._spare: list[torch.cuda.Event] = []
        self._open = local()

    def begin(self, kind: Hashable) -> None:
        """A step of some kind begins; what an error left of the one before is dropped."""
        self._steps[kind] += 1
        number = self._steps[kind]
        self.timing = number <= ALL_UP_TO or number % EVERY == 0
        self._now, self._in_step = Timed(), True
        if self.timing:
            self._before = self._state()

    def end(self) -> None:
        """The step is over."""
        self._in_step = False
        if self._now.meters:
            self._now.disturbed = self._state() != self._before
            self._pending.append(self._now)
            self._now = Timed()
        self.settle(wait=False)

    def times(self, device: torch.device) -> bool:
        """Whether what happens on this device is timed in this step."""
        return self.timing or device.type != "cuda"

    def phase(self, meter: Booked, name: str) -> AbstractContextManager[None]:
        """Time what happens inside, and show it to PyTorch's profiler as `thinwire::name`."""
        timed = self.times(meter.device)
        if profiler._is_profiler_enabled:
            return _Shown(self, meter, name, timed)
        return _Phase(self, meter, name) if timed else _NOTHING

    def meeting(self) -> AbstractContextManager[None]:
        """Time a wait for peers: as `exchange`, of the unit whose phase it happens in."""
        outer = self._stack()[-1] if self._stack() else None
        if outer is not None and outer.phase == MEETING:
            return _NOTHING
        if outer is None and not self.times(self._device):
            return _NOTHING
        return _Phase(self, None if outer is None else outer.meter, MEETING)

    def span(self, meter: Booked, name: str, start: float, end: float) -> None:
        """Enter what was timed elsewhere by the host's clock."""
        self._add(torch.device("cpu"), Piece(meter, name, start, end, meter.fresh))

    def settle(self, wait: bool) -> None:
        """Share out the steps whose events are there; `wait`: all but one that is under way."""
        if wait and self._now.meters and not self._in_step:
            self._pending.append(self._now)
            self._now = Timed()
        while self._pending and (wait or _is_over(self._pending[0])):
            self._share_out(self._pending.popleft())

    def enter(self, meter: Booked | None, name: str) -> None:
        """A phase begins in this thread; the one that it is in pauses."""
        device = self._device if meter is None else meter.device
        now, stack = self._mark(device), self._stack()
        if stack:
            self._add(device, _ended(stack[-1], now))
        self._device = device
        stack.append(Piece(meter, name, now, fresh=meter is not None and meter.fresh))

    def leave(self) -> None:
        """The innermost phase of this thread ends; the one around it goes on."""
        stack = self._stack()
        piece = stack.pop()
        device = self._device if piece.meter is None else piece.meter.device
        now = self._mark(device)
        self._add(device, _ended(piece, now))
        if stack:
            stack[-1].start = now

    def _stack(self) -> list[Piece]:
        stack: list[Piece] | None = getattr(self._open, "stack", None)
        if stack is None:
            stack = self._open.stack = []
        return stack

    def _add(self, device: torch.device, piece: Piece) -> None:
        self._now.pieces[device].append(piece)
        if piece.meter is not None:
            self._now.meters[id(piece.meter)] = piece.meter

    def _mark(self, device: torch.device) -> Mark:
        if device.type != "cuda":
            return time.perf_counter()
        event = self._spare.pop() if self._spare else torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    def _state(self) -> tuple[int, int]:
        """What differs after a kernel was compiled, or a device was asked for more memory."""
        on_gpu = self._device.type == "cuda"
        return compilations(), torch.cuda.memory_reserved(self._device) if on_gpu else 0

    def _share_out(self, step: Timed) -> None:
        seconds: dict[int, Counter[str]] = {key: Counter() for key in step.meters}
        first: dict[int, bool] = dict.fromkeys(step.meters, False)
        for device, pieces in step.pieces.items():
            spans = _seconds_of(pieces) if device.type == "cuda" else _floats(pieces)
            weights = [1 if p.meter is None else p.meter.weight for p in pieces]
            for piece, share in zip(pieces, shared_out(spans, weights), strict=True):
                if piece.meter is None:
                    self._to_all(step, seconds, piece.phase, share)
                else:
                    seconds[id(piece.meter)][piece.phase] += share  # type: ignore[assignment]
                    first[id(piece.meter)] |= piece.fresh
            if device.type == "cuda":
                marks = {id(mark): mark for p in pieces for mark in (p.start, p.end)}
                self._spare.extend(marks.values())
        for key, meter in step.meters.items():
            meter.book(seconds[key], step.disturbed or first[key])

    def _to_all(
        self, step: Timed, seconds: dict[int, Counter[str]], phase: str, share: float
    ) -> None:
        """What no unit waited for alone, all of them did: by their sizes."""
        whole = sum(meter.weight for meter in step.meters.values())
        for key, meter in step.meters.items():
            seconds[key][phase] += share * meter.weight / whole  # type: ignore[assignment]


class _Phase:
    """A phase as a context; a class, since a generator costs a microsecond more."""

    __slots__ = ("_clock", "_meter", "_name")

    def __init__(self, clock: StepClock, meter: Booked | None, name: str) -> None:
        self._clock, self._meter, self._name = clock, meter, name

    def __enter__(self) -> None:
        self._clock.enter(self._meter, self._name)

    def __exit__(self, *error: object) -> None:
        self._clock.leave()


class _Shown(_Phase):
    """One that the profiler sees."""

    __slots__ = ("_shown", "_timed")

    def __init__(self, clock: StepClock, meter: Booked, name: str, timed: bool) -> None:
        super().__init__(clock, meter, name)
        self._timed, self._shown = timed, profiler.record_function(f"thinwire::{name}")

    def __enter__(self) -> None:
        self._shown.__enter__()
        if self._timed:
            super().__enter__()

    def __exit__(self, *error: object) -> None:
        if self._timed:
            super().__exit__(*error)
        self._shown.__exit__(None, None, None)


def shared_out(spans: Sequence[tuple[float, float]], weights: Sequence[int]) -> list[float]:
    """Seconds of each span, where those that overlap share the time by their weights.

    >>> shared_out([(0, 4), (1, 3)], [1, 1])
    [3.0, 1.0]
    """
    edges = sorted(
        (moment, place, sign)
        for place, span in enumerate(spans)
        for moment, sign in zip(span, (1, -1), strict=True)
    )
    shares = [0.0] * len(spans)
    each, under_way, now = 0.0, 0, 0.0  # seconds so far of one that has weight 1
    for moment, place, sign in edges:
        each += (moment - now) / under_way if under_way else 0.0
        now = moment
        shares[place] -= sign * each * weights[place]
        under_way += sign * weights[place]
    return shares


def _ended(piece: Piece, now: Mark) -> Piece:
    return Piece(piece.meter, piece.phase, piece.start, now, piece.fresh)


def _is_over(step: Timed) -> bool:
    return all(
        piece.end.query()
        for device, pieces in step.pieces.items()
        if device.type == "cuda"
        for piece in reversed(pieces)  # the last is the likeliest to be under way
    )


def _floats(pieces: Sequence[Piece]) -> list[tuple[float, float]]:
    return [(piece.start, piece.end) for piece in pieces]


def _seconds_of(pieces: Sequence[Piece]) -> list[tuple[float, float]]:
    """Events as seconds since the first that was recorded; waits for the last."""
    for piece in pieces:
        if not piece.end.query():
            piece.end.synchronize()
    first = pieces[0].start

    def since(event: Mark) -> float:
        return float(first.elapsed_time(event)) / 1000

    return [(since(piece.start), since(piece.end)) for piece in pieces]
