"""`thinwire bench kernels`: what each kernel costs, against what its bytes cost.

The floor of an operation is the least it must move, at the speed of a plain pass over as many
elements measured in the same run: a read (sum), a read-modify-write (a += b) or a fill. Baselines
do the same work in torch operations.

`seconds` is the median on a GPU, by its own clock, and the least on the CPU: of the process's time
on one thread, of the wall clock on several. `first_seconds` is the first call's, compilation
included; `cold` says that nothing compiled was at hand. On a GPU the host has a head start, as it
has in training: launches are not measured, except of work that makes the host wait.

Also a module, for machines without the command line: `python -m thinwire.bench.kernels`.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import torch

from thinwire.bench.common import Quiet, Spread, Watcher
from thinwire.bench.kernels_ops import OPS, FloorKind, Inputs, Op, Work
from thinwire.errors import ThinwireError
from thinwire.kernels import Implementation, chosen
from thinwire.machine import available_memory_gib
from thinwire.results import ResultFile, Row

T = TypeVar("T")

FLOOR_BYTES: dict[FloorKind, int] = {"read": 4, "rmw": 12, "fill": 4}  # an element
COPIES = 12  # of the elements that may be held at once
LEAST_CALLS, MOST_CALLS = 5, 200
HEAD_START = 1 << 20  # cycles of the GPU for each call: 0.6 ms, in which the host queues it


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


def plan(settings: Settings) -> list[Case]:
    """All cases, in the order they run."""
    _refuse_impossible(settings)
    ops = [op for op in OPS if not settings.ops or op.name in settings.ops]
    return [
        Case(threads, n, density, op)
        for threads in settings.threads
        for n in settings.n
        for density in settings.density
        for op in ops
    ]


def run(settings: Settings, results: ResultFile, watcher: Watcher) -> list[str]:
    """Measure everything, row by row into `results`; what failed, in words."""
    device, failures = torch.device(settings.device), []
    results.machine.update(_versions(device))
    cold = "numba" not in sys.modules and os.environ.get("NUMBA_CACHE_DIR") is not None
    threads_before = torch.get_num_threads()
    inputs: Inputs | None = None
    floors: dict[FloorKind, Spread] = {}
    try:
        for case in plan(settings):
            watcher.start(f"{case.op.name}, {case.op.impl}, {case.n:,} × {case.density:g}")
            if (torch.get_num_threads(), inputs and inputs.n) != (case.threads, case.n):
                torch.set_num_threads(case.threads)
                floors = measure_floors(case.n, device, settings.seconds)
            if inputs is None or (inputs.n, inputs.density) != (case.n, case.density):
                inputs = Inputs(case.n, case.density, device)
            try:
                results.add([_row(case, inputs, floors, settings) | {"cold": cold}])
            except Exception as error:  # one kernel that fails must not cost the others' results
                failures.append(f"{case.op.name} ({case.op.impl}), {case.n:,}: {error!r}")
            watcher.advance()
    finally:
        torch.set_num_threads(threads_before)
    return failures


def measure_floors(n: int, device: torch.device, seconds: float) -> dict[FloorKind, Spread]:
    """Seconds of the three plain passes over n elements."""
    a, b = torch.ones(n, device=device), torch.zeros(n, device=device)
    passes: dict[FloorKind, Work] = {"read": a.sum, "rmw": lambda: a.add_(b), "fill": b.zero_}
    return {kind: measure(work, device, seconds)[1] for kind, work in passes.items()}


def measure(work: Work, device: torch.device, seconds: float) -> tuple[float, Spread, int]:
    """Seconds of the first call; the spread of the others; how many there were."""
    clock = _gpu_seconds if device.type == "cuda" else _cpu_seconds
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    first = time.perf_counter() - start
    once = max(clock(work, 1)[0], 1e-7)
    calls = round(min(max(seconds / once, LEAST_CALLS), MOST_CALLS))
    return first, Spread.of(clock(work, calls)), calls


def _gpu_seconds(work: Work, calls: int) -> list[float]:
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
              for _ in range(calls)]  # fmt: skip
    torch.cuda._sleep(HEAD_START * calls)
    for before, after in events:
        before.record()
        work()
        after.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) / 1000 for before, after in events]


def _cpu_seconds(work: Work, calls: int) -> list[float]:
    """The process's own time leaves out what others took, but adds up all threads'."""
    clock: Callable[[], float] = (
        time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    )
    found = []
    for _ in range(calls):
        start = clock()
        work()
        found.append(clock() - start)
    return found


def _row(case: Case, inputs: Inputs, floors: dict[FloorKind, Spread], settings: Settings) -> Row:
    op, device = case.op, inputs.device
    first, spread, calls = measure(op.prepare(inputs), device, settings.seconds)
    on_gpu = device.type == "cuda"
    plain = floors[op.floor]
    share = op.bytes(inputs) / (FLOOR_BYTES[op.floor] * case.n)
    floor = share * (plain.median if on_gpu else plain.low)
    seconds = spread.median if on_gpu else spread.low
    return {
        "op": op.name,
        "payloads": op.payloads,
        "impl": implementation(op, device),
        "device": device.type,
        "n": case.n,
        "density": case.density,
        "threads": None if on_gpu else case.threads,
        "seconds": seconds,
        "seconds_min": spread.low,
        "seconds_max": spread.high,
        "seconds_iqr": spread.iqr,
        "calls": calls,
        "first_seconds": first,
        "floor": op.floor,
        "floor_bytes": op.bytes(inputs),
        "floor_seconds": floor,
        "ratio": seconds / floor,
    }


def implementation(op: Op, device: torch.device) -> str:
    """Who does the work: one of ours, or a baseline by its name."""
    if op.package is None:
        return op.impl
    names: tuple[Implementation, ...] = ("reference", "numba", "triton")
    package = f"thinwire.kernels.{op.package}"
    if find_spec(package) is None:  # a codec without a kernel of its own
        return "reference"
    return chosen(device, tuple(name for name in names if find_spec(f"{package}.{name}")))


def _versions(device: torch.device) -> dict[str, object]:
    if device.type != "cuda":
        return {}
    from importlib.metadata import version

    driver = Path("/proc/driver/nvidia/version")
    found = re.search(r"\d+\.\d+(\.\d+)*", driver.read_text()) if driver.exists() else None
    return {
        "gpu": torch.cuda.get_device_name(device),
        "cuda": torch.version.cuda,
        "triton": version("triton"),
        "driver": found and found[0],
    }


def _refuse_impossible(settings: Settings) -> None:
    known = tuple(dict.fromkeys(op.name for op in OPS))
    if unknown := set(settings.ops) - set(known):
        raise ThinwireError(f"no operation is called {sorted(unknown)}; there are {known}")
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise ThinwireError("there is no CUDA device here: take --device cpu")
    if min(settings.n) < 1000 or not all(0 < density < 1 for density in settings.density):
        raise ThinwireError("n must be at least 1000, and densities between 0 and 1")
    if min(settings.threads) < 1:
        raise ThinwireError(f"threads={settings.threads} must be at least 1")
    needed = COPIES * 4 * max(settings.n) / 2**30
    free = available_memory_gib()
    if settings.device == "cuda":
        free = torch.cuda.mem_get_info()[0] / 2**30
    if free is not None and needed > free:
        raise ThinwireError(f"{max(settings.n):,} elements may need {needed:.1f} GiB of {free:.1f}")


@contextmanager
def cold_caches() -> Iterator[None]:
    """Nothing compiled is at hand for what is imported within, and nothing is left behind."""
    with tempfile.TemporaryDirectory() as folder:
        before = dict(os.environ)
        os.environ |= {"NUMBA_CACHE_DIR": folder, "TRITON_CACHE_DIR": folder}
        try:
            yield
        finally:
            for name in ("NUMBA_CACHE_DIR", "TRITON_CACHE_DIR"):
                os.environ.pop(name)
                if name in before:
                    os.environ[name] = before[name]


def size(text: str) -> int:
    """A whole number, or a power: 1000000, 2^20."""
    base, power, exponent = text.partition("^")
    try:
        return int(base) ** int(exponent) if power else int(base)
    except ValueError:
        raise ThinwireError(f"{text!r} is not a number of elements such as 2^20") from None


def _listed(kind: Callable[[str], T], text: str) -> tuple[T, ...]:
    return tuple(kind(word) for word in text.split(","))


def main(arguments: Sequence[str] | None = None) -> None:
    """The same without typer and rich: plain lines."""
    default = Settings()
    parser = argparse.ArgumentParser(prog="python -m thinwire.bench.kernels")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, kind in (("n", size), ("density", float), ("threads", int)):
        parser.add_argument(f"--{name}", type=partial(_listed, kind))
    parser.add_argument("--ops", type=lambda text: tuple(text.split(";")))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--png", type=Path)
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value}
    json, png = given.pop("json", None), given.pop("png", None)
    results = ResultFile(json)
    with cold_caches():
        failures = run(replace(default, **given), results, Quiet())
    for row in results.rows:
        print(" ".join(as_cells(row)))
    if png is not None:
        from thinwire.bench.kernels_plot import draw

        draw(results.rows, png)
    if failures:
        sys.exit("\n".join(failures))


HEADINGS = ("op", "impl", "n", "density", "threads", "ms", "iqr", "floor ms", "ratio", "first s")


def as_cells(row: Row) -> list[str]:
    """A row, as the tables show it."""
    return [
        row["op"] if row["payloads"] is None else f"{row['op']} {row['payloads']}",
        row["impl"],
        f"{row['n']:,}",
        f"{row['density']:g}",
        "" if row["threads"] is None else str(row["threads"]),
        f"{1000 * row['seconds']:.4f}",
        f"{1000 * row['seconds_iqr']:.4f}",
        f"{1000 * row['floor_seconds']:.4f}",
        f"{row['ratio']:.2f}",
        f"{row['first_seconds']:.2f}",
    ]


if __name__ == "__main__":
    main()
