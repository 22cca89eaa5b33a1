"""`thinwire bench kernels`: what each kernel costs, against what its bytes cost.

The floor of an operation is the least it must move, at the speed of a plain pass over as many
elements measured in the same run: a read (sum), a read-modify-write (a += b) or a fill. Baselines
do the same work in torch operations.

`seconds` is the median on a GPU, by its own clock, and the least on the CPU: of the process's time
on one thread, of the wall clock on several. Of whole recipes it is the mean, as in `stats()`: some
of their steps do more than others; and they take turns, step by step. `first_seconds` is the first
call's, compilation included; `cold` says that nothing compiled was at hand. On a GPU the host has a
head start, as it has in training: launches are not measured, except of work that makes the host
wait, and of whole recipes.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from unittest.mock import patch

import torch

from thinwire.bench.kernels.encode import ENCODE, WHOLE
from thinwire.bench.kernels.ops import KERNELS, FloorKind, Inputs, Op, Work
from thinwire.bench.kernels.timing import Stepped, first_call, measure_floors, measure_in_turn
from thinwire.bench.limits import refuse_device, refuse_memory
from thinwire.bench.timing import Spread, Watcher, threads
from thinwire.errors import ThinwireError
from thinwire.kernels import chosen
from thinwire.machine import available_memory_gib, usable_cores
from thinwire.results.file import ResultFile, Row

OPS: tuple[Op, ...] = (*KERNELS, *ENCODE)
FLOOR_BYTES: dict[FloorKind, int] = {"read": 4, "rmw": 12, "fill": 4}  # an element
COPIES = 24  # of the elements that may be held at once: those of the recipes that take turns too
LEAST_N = 1000  # elements


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. Empty `ops` means all there are."""

    device: str = "cpu"
    n: tuple[int, ...] = (1 << 20, 1 << 22, 1 << 24)
    density: tuple[float, ...] = (0.0001, 0.001, 0.01)
    threads: tuple[int, ...] = (1,)
    ops: tuple[str, ...] = ()
    seconds: float = 0.3  # of each measurement, about


@dataclass(frozen=True, slots=True)
class Case:
    """One row to be."""

    threads: int
    n: int
    density: float
    op: Op

    def __str__(self) -> str:
        return f"{self.op.name}, {self.op.impl}, {self.n:,} × {self.density:g}"


def plan(settings: Settings) -> list[Case]:
    """All cases, in the order they run."""
    _refuse_impossible(settings)
    ops = [op for op in OPS if not settings.ops or op.name in settings.ops]
    return [
        Case(count, n, density, op)
        for count in settings.threads
        for n in settings.n
        for density in settings.density
        for op in ops
    ]


def run(settings: Settings, results: ResultFile, watcher: Watcher) -> list[str]:
    """Measure everything, row by row into `results`; what failed, in words."""
    device = torch.device(settings.device)
    failures: list[str] = []
    results.machine.update(_versions(device))
    cold = "numba" not in sys.modules and os.environ.get("NUMBA_CACHE_DIR") is not None
    for (count, n), group in groupby(plan(settings), lambda case: (case.threads, case.n)):
        with threads(count):
            floors = measure_floors(n, device, settings.seconds)
            for density, cases in groupby(group, lambda case: case.density):
                inputs = Inputs(n, density, device)
                for turn in _turns(cases):
                    measured = _measure(turn, inputs, settings.seconds, watcher, failures)
                    rows = (_row(*each, inputs.device, floors) for each in measured)
                    results.add([row | {"cold": cold} for row in rows])
    return failures


def _turns(cases: Iterable[Case]) -> Iterator[list[Case]]:
    """What is measured together: each kernel by itself, whole recipes in turn."""
    for whole, group in groupby(cases, lambda case: case.op.impl == WHOLE):
        together = list(group)
        yield from [together] if whole else ([case] for case in together)


@dataclass(frozen=True, slots=True)
class _Measured:
    first: float
    spread: Spread
    calls: int
    steps: bool  # of a recipe, some of which do more than others

    def seconds(self, on_gpu: bool) -> float:
        if self.steps:
            return self.spread.mean
        return self.spread.median if on_gpu else self.spread.low


def _measure(
    cases: list[Case], inputs: Inputs, seconds: float, watcher: Watcher, failures: list[str]
) -> list[tuple[Case, int, _Measured]]:
    """How long they take, each with the bytes it must move, but those that fail: the others'
    results are still wanted."""
    started: list[tuple[Case, Work, float]] = []
    for case in cases:
        watcher.start(str(case))
        try:
            work = case.op.prepare(inputs)
            started.append((case, work, first_call(work, inputs.device)))
        except Exception as error:
            failures.append(f"{case}: {error!r}")
    measured = []
    try:
        works = [work for _, work, _ in started]
        spreads, calls = measure_in_turn(works, inputs.device, seconds) if works else ([], 0)
        for (case, work, first), spread in zip(started, spreads, strict=True):
            times = _Measured(first, spread, calls, isinstance(work, Stepped))
            measured.append((case, case.op.bytes(inputs), times))
    except Exception as error:
        failures.append(f"{' / '.join(str(case) for case, *_ in started)}: {error!r}")
    watcher.advance(steps=len(cases))
    return measured


def _row(
    case: Case, least: int, times: _Measured, device: torch.device, floors: dict[FloorKind, Spread]
) -> Row:
    op, spread, on_gpu = case.op, times.spread, device.type == "cuda"
    plain = floors[op.floor]
    share = least / (FLOOR_BYTES[op.floor] * case.n)
    floor = share * (plain.median if on_gpu else plain.low)
    return {
        "op": op.name,
        "payloads": op.payloads,
        "impl": implementation(op, device),
        "device": device.type,
        "n": case.n,
        "density": case.density,
        "threads": None if on_gpu else case.threads,
        "seconds": times.seconds(on_gpu),
        "seconds_min": spread.low,
        "seconds_max": spread.high,
        "seconds_iqr": spread.iqr,
        "calls": times.calls,
        "first_seconds": times.first,
        "floor": op.floor,
        "floor_bytes": least,
        "floor_seconds": floor,
        "ratio": times.seconds(on_gpu) / floor,
    }


def implementation(op: Op, device: torch.device) -> str:
    """Who does the work: one of ours, or a baseline by its name."""
    if op.package is None:
        return op.impl
    return chosen(op.package, device)


def _versions(device: torch.device) -> dict[str, object]:
    if device.type != "cuda":
        return {}
    from importlib.metadata import version

    driver = Path("/proc/driver/nvidia/version")
    number = re.search(r"\d+\.\d+(\.\d+)*", driver.read_text()) if driver.exists() else None
    return {
        "gpu": torch.cuda.get_device_name(device),
        "cuda": torch.version.cuda,
        "triton": version("triton"),
        "driver": number and number[0],
    }


def _refuse_impossible(settings: Settings) -> None:
    known = dict.fromkeys(op.name for op in OPS)
    for name in settings.ops:
        if name not in known:
            raise ThinwireError(f"unknown operation {name!r}; there are: {'; '.join(known)}")
    if settings.device not in ("cpu", "cuda"):
        raise ThinwireError(f"device={settings.device!r} must be cpu or cuda")
    refuse_device(settings.device)
    if min(settings.n) < LEAST_N:
        raise ThinwireError(f"n={min(settings.n)} must be at least {LEAST_N}")
    for density in settings.density:
        if not 0 < density < 1:
            raise ThinwireError(f"density={density} must be between 0 and 1")
    for count in settings.threads:
        if not 1 <= count <= usable_cores():
            raise ThinwireError(
                f"threads={count} must be from 1 to {usable_cores()}, the cores of this machine"
            )
    free_gib = available_memory_gib()
    if settings.device == "cuda":
        free_gib = torch.cuda.mem_get_info()[0] / 2**30
    largest = max(settings.n)
    refuse_memory(COPIES * 4 * largest / 2**30, free_gib, f"{largest:,} elements")


@contextmanager
def cold_caches() -> Iterator[None]:
    """Nothing compiled is at hand for what is imported within, and nothing is left behind."""
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, NUMBA_CACHE_DIR=folder, TRITON_CACHE_DIR=folder),
    ):
        yield


def default_device() -> str:
    """A GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"
