"""`thinwire bench sync`: what one synchronisation costs, recipes × sizes × workers × rates.

Peers are measured in the same run, over the same links, on the same gradients. `seconds` is the
median over the steps of the slowest rank's time; phases are means over the ranks, and `other` is
what a rank spent outside of all phases.

`bytes_sent_per_rank` counts what the links carried, headers included, by the kernel's counters;
on the loopback it is `socket_bytes_per_rank`: the payload written to the rank's own sockets, by
the kernel again, which is the same in every run.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import thinwire as tw
from thinwire.bench.limits import refuse_links, refuse_memory
from thinwire.bench.peers import BASELINE, PEERS
from thinwire.bench.sync.case import takes_density
from thinwire.bench.timing import LoadMeter, Spread, Watcher
from thinwire.cookbook import at_density
from thinwire.errors import ThinwireError
from thinwire.lab import Lab
from thinwire.lab.lab import Check
from thinwire.lab.links import bits_per_second
from thinwire.lab.rank_main import Message
from thinwire.lab.ranks import CaseError, Workers, lab_of
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
    nodes: int | None = None  # one a worker
    rates: tuple[str | None, ...] = ("1gbit",)  # None is the loopback
    density: tuple[float, ...] = (0.01,)
    steps: int = 5
    warmup: int = 2
    seed: int = 0
    check: Check = "refuse"


@dataclass(frozen=True, slots=True)
class Case:
    """One row to be."""

    workers: int
    rate: str | None
    n: int
    recipe: str
    density: float | None  # None where it means nothing


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
    failures: list[str] = []
    for (workers, rate), cases in groupby(plan(settings), lambda case: (case.workers, case.rate)):
        watcher.start(f"starting {workers} workers")
        with lab_of(settings.nodes or workers, rate, settings.check) as lab:
            for row in _measure_all(settings, lab, list(cases), watcher, failures):
                results.add([row])
    return failures


def _measure_all(
    settings: Settings,
    lab: Lab,
    cases: Sequence[Case],
    watcher: Watcher,
    failures: list[str],
) -> Iterator[Row]:
    """The rows of one lab, each as soon as it is there."""
    ranks = Workers(lab, cases[0].workers, TARGET)
    dense_seconds: dict[int, float] = {}
    for case in cases:
        watcher.start(_label(case))
        load = LoadMeter()
        try:
            answers = ranks.run(_order(case, settings), watcher.advance)
        except CaseError as error:
            failures.append(f"{_label(case)}: {error}")
            continue
        cpu = sum(answer["cpu_seconds"] for answer in answers)
        row = _row(case, settings, lab, answers)
        row["cores_busy_with_other_work"] = load.others(cpu)
        if case.recipe == BASELINE:
            dense_seconds[case.n] = row["seconds"]
        if case.n in dense_seconds:
            row["speedup_over_dense"] = dense_seconds[case.n] / row["seconds"]
        yield row


def _order(case: Case, settings: Settings) -> dict[str, Any]:
    """What the ranks are told."""
    return {
        "recipe": case.recipe,
        "n": case.n,
        "density": case.density,
        "steps": settings.steps,
        "warmup": settings.warmup,
        "seed": settings.seed,
    }


def _row(case: Case, settings: Settings, lab: Lab, answers: list[Message]) -> Row:
    steps = list(zip(*(answer["steps"] for answer in answers), strict=True))
    times = Spread.of([max(rank["seconds"] for rank in step) for step in steps])
    socket_bytes = _mean_or_none([r["socket_bytes"] for step in steps for r in step])
    counted = _mean_or_none([answer["counted_bytes"] for answer in answers])
    link_bytes = _link_bytes_per_rank(answers, lab, settings.steps)
    check = lab.rate_check
    return {
        "recipe": case.recipe,
        "peer": case.recipe in PEERS,
        "workers": case.workers,
        "nodes": len(lab.nodes),
        "rate": None if case.rate is None else bits_per_second(case.rate) / 1e6,
        "rate_measured": None if check is None else round(check.measured / 1e6, 1),
        "n": case.n,
        "density": case.density,
        "k": _mean_or_none([answer["k"] for answer in answers]),
        "seconds": times.median,
        "seconds_min": times.low,
        "seconds_max": times.high,
        "seconds_iqr": times.iqr,
        "seconds_by_phase": _phases(steps),
        "bytes_sent_per_rank": next(
            (b for b in (link_bytes, socket_bytes, counted) if b is not None), None
        ),
        "socket_bytes_per_rank": socket_bytes,
        "speedup_over_dense": None,
        "decision": answers[0]["decision"],  # of `auto`
        "steps": settings.steps,
        "warmup": settings.warmup,
    }


def _phases(steps: Sequence[Sequence[dict[str, Any]]]) -> dict[str, float]:
    """The median over the steps of each phase's mean over the ranks; {} if it has no phases."""
    names = dict.fromkeys(phase for step in steps for rank in step for phase in rank["phases"])
    if not names:
        return {}

    def median(seconds_of: Any) -> float:
        return statistics.median(statistics.fmean(map(seconds_of, step)) for step in steps)

    found = {name: median(lambda rank, name=name: rank["phases"].get(name, 0.0)) for name in names}
    rest = median(lambda rank: max(0.0, rank["seconds"] - sum(rank["phases"].values())))
    return found | {"other": rest}


def _link_bytes_per_rank(answers: list[Message], lab: Lab, steps: int) -> int | None:
    """A step's bytes on all links, shared out to the ranks; the first of a node tells its link."""
    per_node = len(answers) // len(lab.nodes)
    links = [answer["link_bytes"] for answer in answers[::per_node]]
    if any(count is None for count in links):
        return None
    return int(sum(links) / len(answers) / steps)


def _mean_or_none(numbers: Sequence[float | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return round(statistics.fmean(known)) if len(known) == len(numbers) and known else None


def _label(case: Case) -> str:
    density = "" if case.density is None else f"({case.density:g})"
    return f"{case.recipe}{density}, {case.n:,} × {case.workers} at {case.rate or 'loopback'}"


def _refuse_impossible(settings: Settings) -> None:
    """Before anything is started: a run should not end in its tenth minute for this."""
    for density in settings.density:
        check_density(density)
    refuse_links(settings.workers, settings.nodes, settings.rates)
    if min(settings.n) < 1 or settings.steps < 1 or settings.warmup < 0:
        raise ThinwireError("n and steps must be at least 1, and warmup at least 0")
    largest = max(settings.n)
    gib_a_rank = RANK_GIB + COPIES * 4 * largest / 2**30
    refuse_memory(max(settings.workers), gib_a_rank, f"{largest:,} elements")
