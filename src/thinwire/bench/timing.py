"""What every benchmark needs: medians with their spread, threads, progress, others' load."""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and how far the single measurements lie from it."""

    median: float
    low: float
    high: float
    iqr: float
    mean: float

    @classmethod
    def of(cls, measured: Sequence[float]) -> "Spread":
        quarters = statistics.quantiles(measured, n=4) if len(measured) > 1 else [0.0, 0.0, 0.0]
        return cls(
            median=statistics.median(measured),
            low=min(measured),
            high=max(measured),
            iqr=quarters[2] - quarters[0],
            mean=statistics.fmean(measured),
        )


@contextmanager
def threads(count: int) -> Iterator[None]:
    """torch computes with so many threads; afterwards with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Watcher(Protocol):
    """Is told what is being done, and of each step that is over, with a note such as its loss."""

    def start(self, what: str) -> None: ...

    def advance(self, note: str = "", steps: int = 1) -> None: ...


class Quiet:
    """Says nothing."""

    def start(self, what: str) -> None:
        pass

    def advance(self, note: str = "", steps: int = 1) -> None:
        pass


class LoadMeter:
    """How many cores other processes kept busy since: what the system worked, less our own."""

    def __init__(self) -> None:
        self._busy, self._at = _busy_seconds(), time.monotonic()

    def others(self, own_seconds: float) -> float | None:
        """Cores, given the CPU time of our own processes; None where nothing is counted."""
        busy, at = _busy_seconds(), time.monotonic()
        if busy is None or self._busy is None or at <= self._at:
            return None
        return round(max(0.0, busy - self._busy - own_seconds) / (at - self._at), 2)


def _busy_seconds() -> float | None:
    """CPU time of all processes since the system started."""
    try:
        user, nice, system, *_ = map(int, Path("/proc/stat").read_text().split()[1:4])
    except (OSError, ValueError):
        return None
    return (user + nice + system) / 100  # USER_HZ, the same on every Linux
