"""`thinwire bench sync`: what one synchronisation costs, recipes × sizes × workers × rates.

Peers are measured in the same run, over the same links, on the same gradients. `seconds` is the
median over the steps of the slowest rank's time; phases are means over the ranks, and `other` is
what a rank spent outside of all phases.

`bytes_sent_per_rank` counts what the links carried, headers included, by the kernel's counters;
on the loopback it is `socket_bytes_per_rank`: the payload written to the rank's own sockets, by
the kernel again, which is the same in every run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import thinwire as tw
from thinwire.bench.limits import refuse_device, refuse_links, refuse_workers_in_memory
from thinwire.bench.peers import BASELINE, PEERS, takes_density
from thinwire.bench.runner import Answers, Device, Place, in_words, measure_cases, setting_of
from thinwire.bench.timing import Spread, Watcher
from thinwire.cookbook import at_density
from thinwire.errors import ThinwireError
from thinwire.lab.lab import Check
from thinwire.lab.rank_main import Message
from thinwire.results.file import ResultFile, Row
from thinwire.settings import check_density

TARGET = "thinwire.bench.sync.case:measure"
COPIES = 12  # of the gradient that a rank may hold at once: its own three, state, workspaces
RANK_GIB = 0.3  # of an interpreter with torch


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. Empty `recipes` means all there are, and the peers."""

    recipes: tuple[str, ...] = ()
    n: tuple[int, ...] = (1_000_000,)
    workers: tuple[int, ...] = (4,)
    nodes: int | None = None  # one per worker
    rates: tuple[str | None, ...] = ("1gbit",)  # None is the loopback
    density: tuple[float, ...] = (0.01,)
    steps: int = 5
    warmup: int = 2
    seed: int = 0
    check: Check = "refuse"
    device: Device = "cpu"
    budget_s: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One row to be."""

    workers: int
    rate: str | None
    n: int
    recipe: str
    density: float | None  # None where it means nothing

    def __str__(self) -> str:
        return in_words(self, f"{self.n:,}")


def plan(settings: Settings) -> list[Case]:
    """All cases, in the order they run; the first of each size is what speed-ups refer to."""
    names = settings.recipes or (*PEERS, *tw.recipes())
    names = (BASELINE, *(name for name in dict.fromkeys(names) if name != BASELINE))
    densities: dict[str, tuple[float | None, ...]] = {
        name: settings.density if takes_density(name) else (None,) for name in names
    }
    for name in names:
        if name not in PEERS:
            at_density(name, densities[name][0])  # a misspelt recipe is found before anything runs
    _refuse_impossible(settings)
    return [
        Case(workers, rate, n, name, density)
        for workers in settings.workers
        for rate in settings.rates
        for n in settings.n
        for name in names
        for density in densities[name]
    ]


def run(settings: Settings, results: ResultFile, watcher: Watcher) -> list[str]:
    """Measure everything, row by row into `results`; what failed, in words."""
    dense_seconds: dict[tuple[object, ...], float] = {}

    def add(case: Case, answers: Answers) -> None:
        row = _row(case, settings, answers)
        place = (case.workers, case.rate, case.n)
        if case.recipe == BASELINE:
            dense_seconds[place] = row["seconds"]
        if place in dense_seconds:
            row["speedup_over_dense"] = dense_seconds[place] / row["seconds"]
        results.add([row])

    def order(case: Case) -> Message:
        return {
            "recipe": case.recipe,
            "n": case.n,
            "density": case.density,
            "steps": settings.steps,
            "warmup": settings.warmup,
            "seed": settings.seed,
            "device": settings.device,
        }

    cases = plan(settings)
    place = Place(settings.nodes, settings.check, settings.device, settings.budget_s)
    return measure_cases(TARGET, cases, order, add, watcher, place)


def _row(case: Case, settings: Settings, answers: Answers) -> Row:
    steps = list(zip(*(answer["steps"] for answer in answers.ranks), strict=True))
    times = Spread.of([max(rank["seconds"] for rank in step) for step in steps])
    socket_bytes = _mean_or_none([rank["socket_bytes"] for step in steps for rank in step])
    counted = _mean_or_none([answer["counted_bytes"] for answer in answers.ranks])
    link_bytes = _link_bytes_per_rank(answers, settings.steps)
    return {
        **setting_of(case, answers.lab),
        "n": case.n,
        "device": settings.device,
        "k": _mean_or_none([answer["k"] for answer in answers.ranks]),
        "series": _mean_series([answer["series"] for answer in answers.ranks]),
        "seconds": times.median,
        "seconds_min": times.low,
        "seconds_max": times.high,
        "seconds_iqr": times.iqr,
        "seconds_by_phase": _phases(steps),
        "bytes_sent_per_rank": next(
            (count for count in (link_bytes, socket_bytes, counted) if count is not None), None
        ),
        "socket_bytes_per_rank": socket_bytes,
        "speedup_over_dense": None,
        "decision": answers.ranks[0]["decision"],  # of `auto`
        "steps": settings.steps,
        "warmup": settings.warmup,
        "cores_busy_with_other_work": answers.other_load,
    }


def _mean_series(by_rank: Sequence[dict[str, list[float]]]) -> dict[str, float]:
    """What the pieces told, the mean over steps and ranks."""
    names = dict.fromkeys(what for told in by_rank for what in told)
    return {name: fmean(value for told in by_rank for value in told[name]) for name in names}


def _phases(steps: Sequence[Sequence[Message]]) -> dict[str, float]:
    """The median over the steps of each phase's mean over the ranks; {} if it has no phases."""
    names = dict.fromkeys(phase for step in steps for rank in step for phase in rank["phases"])
    if not names:
        return {}
    by_phase = {
        name: median(fmean(rank["phases"].get(name, 0.0) for rank in step) for step in steps)
        for name in names
    }
    by_phase["other"] = median(
        fmean(max(0.0, rank["seconds"] - sum(rank["phases"].values())) for rank in step)
        for step in steps
    )
    return by_phase


def _link_bytes_per_rank(answers: Answers, steps: int) -> int | None:
    """Bytes per step on all links, shared out to the ranks."""
    links = [answer["link_bytes"] for answer in answers.nodes]
    if None in links:
        return None
    return int(sum(links) / len(answers.ranks) / steps)


def _mean_or_none(numbers: Sequence[float | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return round(fmean(known)) if len(known) == len(numbers) and known else None


def _refuse_impossible(settings: Settings) -> None:
    """Before anything is started: a run should not end in its tenth minute for this."""
    for density in settings.density:
        check_density(density)
    refuse_device(settings.device)
    refuse_links(settings.workers, settings.nodes, settings.rates)
    if min(settings.n) < 1 or settings.steps < 1 or settings.warmup < 0:
        raise ThinwireError("n and steps must be at least 1, and warmup at least 0")
    largest = max(settings.n)
    what = f"{largest:,} elements"
    refuse_workers_in_memory(max(settings.workers), RANK_GIB, COPIES * largest, what)
