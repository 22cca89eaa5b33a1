"""Phases in time: nested, overlapping, on the host and on a device's streams."""

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import torch

import thinwire as tw
from thinwire.units import clock as clocks
from thinwire.units.clock import ALL_UP_TO, EVERY, StepClock, shared_out

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@dataclass
class Booked:
    device: torch.device = CPU
    weight: int = 1
    fresh: bool = False
    booked: list = field(default_factory=list)

    def book(self, seconds, apart):
        self.booked.append((dict(seconds), apart))


class Event:
    """A device's event, by a clock that is set; it happens when the device gets there."""

    made, now, over = 0, 0.0, True

    def __init__(self, enable_timing):
        assert enable_timing
        Event.made += 1

    def record(self, stream):
        self.at = Event.now

    def query(self):
        return Event.over

    def synchronize(self):
        pass

    def elapsed_time(self, later):
        return 1000 * (later.at - self.at)


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    Event.made, Event.now, Event.over = 0, 0.0, True
    return Event


@pytest.fixture
def host(monkeypatch):
    """The host's clock, to be set."""
    clock = Counter(now=0)
    monkeypatch.setattr(clocks.time, "perf_counter", lambda: clock["now"])
    return clock


@pytest.mark.parametrize(
    ("spans", "weights", "shares"),
    [
        ([], [], []),
        ([(1, 3)], [5], [2]),
        ([(1, 3), (5, 6)], [1, 1], [2, 1]),
        ([(0, 4), (1, 3)], [1, 1], [3, 1]),
        ([(0, 4), (0, 4)], [3, 1], [3, 1]),
        ([(0, 2), (1, 3), (2, 2)], [1, 1, 7], [1.5, 1.5, 0]),
    ],
)
def test_time_that_several_cover_is_shared(spans, weights, shares):
    assert shared_out(spans, weights) == pytest.approx(shares)


def test_a_phase_pauses_while_another_runs_inside(host):
    clock, meter = StepClock(), Booked()
    clock.begin("step")
    with clock.phase(meter, "select"):
        host["now"] += 1
        with clock.meeting():
            host["now"] += 5
            with clock.meeting():  # of a wait inside a wait
                host["now"] += 2
        host["now"] += 2
    clock.end()
    assert meter.booked == [({"select": 3, "exchange": 7}, False)]


def test_a_meeting_of_no_unit_is_shared_by_all(host):
    clock, small, large = StepClock(), Booked(weight=1), Booked(weight=3)
    clock.begin("step")
    for meter in (small, large):
        with clock.phase(meter, "select"):
            host["now"] += 1
    with clock.meeting():
        host["now"] += 4
    clock.end()
    assert small.booked == [({"select": 1, "exchange": 1}, False)]
    assert large.booked == [({"select": 1, "exchange": 3}, False)]


def test_what_an_error_left_is_dropped(host):
    clock, meter = StepClock(), Booked()
    clock.begin("step")
    with pytest.raises(RuntimeError), clock.phase(meter, "select"):
        raise RuntimeError
    clock.begin("step")
    with clock.phase(meter, "encode"):
        host["now"] += 1
    clock.end()
    assert meter.booked == [({"encode": 1}, False)]


def test_first_steps_and_disturbed_ones_are_kept_apart(host, monkeypatch):
    clock, fresh, old = StepClock(), Booked(fresh=True), Booked()
    compiled = Counter(kernels=0)
    monkeypatch.setattr(clocks, "compilations", lambda: compiled["kernels"])
    for kernels in (0, 1):
        clock.begin("step")
        for meter in (fresh, old):
            with clock.phase(meter, "select"):
                host["now"] += 1
                compiled["kernels"] += kernels
        clock.end()
    assert [apart for _, apart in fresh.booked] == [True, True]
    assert [apart for _, apart in old.booked] == [False, True]


def test_a_device_is_read_when_it_has_got_there(device):
    clock, one, other = StepClock(), Booked(GPU), Booked(GPU)
    Event.over = False
    clock.begin("step")
    with clock.phase(one, "select"):
        device.now += 2
        with clock.phase(other, "exchange"):
            device.now += 3
    clock.end()
    assert one.booked == other.booked == []
    Event.over = True
    clock.begin("step")
    clock.end()
    assert one.booked == [({"select": 2}, False)]
    assert other.booked == [({"exchange": 3}, False)]


def test_events_are_used_again_and_most_steps_have_none(device):
    clock, meter, timed = StepClock(), Booked(GPU), []
    for _ in range(ALL_UP_TO + 3 * EVERY):
        clock.begin("step")
        timed.append(clock.times(GPU))
        with clock.phase(meter, "select"):
            device.now += 1
        clock.end()
    assert device.made == 2
    assert timed.count(True) == ALL_UP_TO + 3 == len(meter.booked)
    clock.begin("another kind")
    assert clock.times(GPU)


def test_the_profiler_sees_phases():
    clock, meter = StepClock(), Booked()
    with torch.profiler.profile() as seen, clock.phase(meter, "select"):
        pass
    assert "thinwire::select" in [event.name for event in seen.events()]


def phases_of(group, rank, size, recipe):
    """Seconds by phase, in a model of several units, and of whole steps."""
    sync = tw.Synchronizer(recipe, group)
    own = torch.Generator().manual_seed(rank)
    seconds = 0.0
    for step in range(8):
        grads = {f"w{i}": torch.randn(20_000, generator=own) for i in range(5)}
        started = clocks.time.perf_counter()
        sync.average_all(grads)
        first = step < sync.stats()["total"]["first_steps"]["steps"]
        seconds += 0.0 if first else clocks.time.perf_counter() - started
    return sync.stats()["total"]["seconds"], seconds


@pytest.mark.parametrize("recipe", ["topk", "ok-topk(unit='tensor')", "dense"])
def test_phases_add_up_to_no_more_than_the_steps(cluster, recipe):
    for phases, seconds in cluster.run(phases_of, 2, recipe):
        assert phases["exchange"] > 0
        assert sum(phases.values()) <= seconds


class Ticking:
    """A clock that goes on only while someone waits for a peer."""

    def __init__(self, sync):
        self.now, self._meeting = 0.0, sync.comm.timed
        sync.comm.timed = self.waiting

    def perf_counter(self):
        return self.now

    @contextmanager
    def waiting(self):
        with self._meeting():
            self.now += 1
            yield


def only_meetings(group, rank, size, recipe):
    sync = tw.Synchronizer(recipe, group)
    ticking = Ticking(sync)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocks, "time", ticking)
        for _ in range(4):
            sync.average("w", torch.randn(5_000, generator=torch.Generator().manual_seed(rank)))
        return sync.stats()["total"]["seconds"]


@pytest.mark.parametrize("recipe", ["ok-topk(0.1)", "gtopk(0.1)", "union(0.1)", "topk(0.1)"])
def test_every_wait_for_a_peer_is_exchange(cluster, recipe):
    phases = cluster.run(only_meetings, 2, recipe)[0]
    assert {phase for phase, seconds in phases.items() if seconds} == {"exchange"}
