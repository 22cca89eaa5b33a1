"""How long one piece of work takes: on a GPU by its own clock, on the CPU by the process's."""

import time
from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import torch

from thinwire.bench.kernels.ops import FloorKind, Work
from thinwire.bench.timing import Spread

LEAST_CALLS, MOST_CALLS = 5, 200
HEAD_START = 1 << 20  # cycles of the GPU for each call: 0.6 ms, in which the host queues it


def measure_floors(n: int, device: torch.device, seconds: float) -> dict[FloorKind, Spread]:
    """Seconds of the three plain passes over n elements."""
    a, b = torch.ones(n, device=device), torch.zeros(n, device=device)
    passes: dict[FloorKind, Work] = {"read": a.sum, "rmw": lambda: a.add_(b), "fill": b.zero_}
    return {kind: measure(work, device, seconds)[1] for kind, work in passes.items()}


def measure(work: Work, device: torch.device, seconds: float) -> tuple[float, Spread, int]:
    """Seconds of the first call; the spread of the others; how many there were."""
    on_gpu = device.type == "cuda"
    if isinstance(work, Stepped):
        work.between()
    start = time.perf_counter()
    work()
    if on_gpu:
        torch.cuda.synchronize(device)
    first = time.perf_counter() - start
    once = max(_clock(work, on_gpu, 1)[0], 1e-7)
    calls = round(min(max(seconds / once, LEAST_CALLS), MOST_CALLS))
    return first, Spread.of(_clock(work, on_gpu, calls)), calls


@runtime_checkable
class Stepped(Protocol):
    """Work that changes what it works on, and so has something to do before it is done again."""

    def between(self) -> None:
        """Not timed."""

    def __call__(self) -> object: ...


def _clock(work: Work, on_gpu: bool, calls: int) -> list[float]:
    if isinstance(work, Stepped):
        return list(_seconds_by_step(work, on_gpu, calls))
    return _gpu_seconds(work, calls) if on_gpu else _cpu_seconds(work, calls)


def _seconds_by_step(work: Stepped, on_gpu: bool, calls: int) -> Iterator[float]:
    for _ in range(calls):
        work.between()
        if on_gpu:
            torch.cuda.synchronize()
        yield from _gpu_seconds(work, 1, head_start=0) if on_gpu else _cpu_seconds(work, 1)


def _gpu_seconds(work: Work, calls: int, head_start: int = HEAD_START) -> list[float]:
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(calls)]
    if head_start:
        torch.cuda._sleep(head_start * calls)
    for before, after in pairs:
        before.record()
        work()
        after.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) / 1000 for before, after in pairs]


def _cpu_seconds(work: Work, calls: int) -> list[float]:
    """The process's own time leaves out what others took, but adds up all threads'."""
    clock: Callable[[], float] = (
        time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    )
    seconds = []
    for _ in range(calls):
        start = clock()
        work()
        seconds.append(clock() - start)
    return seconds
