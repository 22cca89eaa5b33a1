"""In which order units go: the youngest first, and none is left behind.

That nothing changes by it but the time is shown on a GPU, in tests/gpu/test_recording.py.
"""

from collections.abc import Iterator

import pytest

from thinwire.engine.conveyor import PLACES, Conveyor


def unit(name: str, exchanges: int, log: list[str]) -> Iterator[None]:
    for number in range(exchanges):
        log.append(f"{name} sends {number}")
        yield
    log.append(f"{name} ends")


@pytest.fixture
def conveyor() -> Conveyor:
    return Conveyor()


def test_the_next_unit_sends_before_the_one_before_it_ends(conveyor):
    log: list[str] = []
    for name in "abc":
        conveyor.add(unit(name, 1, log))
    conveyor.finish()
    assert log == ["a sends 0", "b sends 0", "a ends", "c sends 0", "b ends", "c ends"]


@pytest.mark.parametrize("exchanges", [0, 1])  # of one rank, of several
def test_no_two_units_are_open_at_one_place(conveyor, exchanges):
    log: list[str] = []
    open_at: dict[int, str] = {}
    for number in range(10):
        place, name = conveyor.place(), f"u{number}"
        before = open_at.get(place)
        assert before is None or f"{before} ends" in log
        open_at[place] = name
        conveyor.add(unit(name, exchanges, log))
    conveyor.finish()
    assert sum(line.endswith("ends") for line in log) == 10


def test_places_are_alike_in_every_step(conveyor):
    first = [conveyor.place() for _ in range(5)]
    conveyor.drain()
    assert [conveyor.place() for _ in range(2)] == [(first[-1] + n) % PLACES for n in (1, 2)]
    conveyor.finish()
    assert [conveyor.place() for _ in range(5)] == first
    conveyor.abandon()
    assert conveyor.place() == first[0]


def test_who_breaks_off_leaves_units_where_they_are(conveyor):
    log: list[str] = []
    conveyor.add(unit("a", 1, log))
    conveyor.abandon()
    conveyor.finish()
    assert log == ["a sends 0"]


def test_an_error_of_one_comes_out(conveyor):
    def breaks() -> Iterator[None]:
        yield
        raise RuntimeError("broke off")

    conveyor.add(breaks())
    with pytest.raises(RuntimeError, match="broke off"):
        conveyor.finish()
