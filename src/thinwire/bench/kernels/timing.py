"""How long one piece of work takes: on a GPU by its own clock, on the CPU by the process's."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch

from thinwire.bench.kernels.ops import FloorKind, Work
from thinwire.bench.timing import Spread

LEAST_CALLS, MOST_CALLS = 5, 200
LEAST_STEPS = 20  # of a whole recipe: some do more than others
HEAD_START = 1 << 20  # cycles of the GPU for each call: 0.6 ms, in which the host queues it


def measure_floors(n: int, device: torch.device, seconds: float) -> dict[FloorKind, Spread]:
    """Seconds of the three plain passes over n elements."""
    a, b = torch.ones(n, device=device), torch.zeros(n, device=device)
    passes: dict[FloorKind, Work] = {"read": a.sum, "rmw": lambda: a.add_(b), "fill": b.zero_}
    return {kind: measure(work, device, seconds)[1] for kind, work in passes.items()}


def measure(work: Work, device: torch.device, seconds: float) -> tuple[float, Spread, int]:
    """Seconds of the first call; the spread of the others; how many there were."""
    first = first_call(work, device)
    (spread,), calls = measure_in_turn([work], device, seconds)
    return first, spread, calls


def first_call(work: Work, device: torch.device) -> float:
    """Seconds of it, compilation included."""
    if isinstance(work, Stepped):
        work.between()
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def measure_in_turn(
    works: Sequence[Work], device: torch.device, seconds: float
) -> tuple[list[Spread], int]:
    """The spread of each, and how many calls there were.

    Several take turns, call by call: what else the machine does meets all of them alike.
    """
    on_gpu = device.type == "cuda"
    once = max([1e-7, *(_clock(work, on_gpu, 1)[0] for work in works)])
    least = LEAST_STEPS if isinstance(works[0], Stepped) else LEAST_CALLS
    calls = round(min(max(seconds / once, least), MOST_CALLS))
    if len(works) == 1:
        return [Spread.of(_clock(works[0], on_gpu, calls))], calls
    turns = [[_clock(work, on_gpu, 1)[0] for work in works] for _ in range(calls)]
    return [Spread.of(own) for own in zip(*turns, strict=True)], calls


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
