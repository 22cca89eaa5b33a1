"""Cases on ranks, lab by lab: the loop that `bench sync`, `bench train` and the demo share."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, Protocol, TypeVar

from thinwire.bench.peers import PEERS
from thinwire.bench.timing import LoadMeter, Watcher
from thinwire.lab import Lab, LabError
from thinwire.lab.lab import Check
from thinwire.lab.links import bits_per_second
from thinwire.lab.rank_main import Message
from thinwire.lab.ranks import CaseError, WorkerError, Workers
from thinwire.results.file import Row

Device = Literal["cpu", "cuda"]


class Case(Protocol):
    """What all cases have; `str(case)` names one for the user."""

    @property
    def workers(self) -> int: ...

    @property
    def rate(self) -> str | None:
        """None is the loopback."""

    @property
    def recipe(self) -> str: ...

    @property
    def density(self) -> float | None:
        """None where it means nothing."""


AnyCase = TypeVar("AnyCase", bound=Case)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the ranks of a lab answered to a case, in rank order."""

    lab: Lab
    ranks: list[Message]
    other_load: float | None  # cores that other processes kept busy meanwhile

    @property
    def nodes(self) -> list[Message]:
        """One rank's answer per node: the ranks of a node share its link."""
        return self.ranks[:: len(self.ranks) // len(self.lab.nodes)]


@dataclass(frozen=True, slots=True)
class Place:
    """Where cases are measured. Without `nodes` every worker has its own.

    On "cuda" the ranks share the cards there are, and talk over links also where the rate is None;
    on the CPU they do with `links`. Once `budget_s` seconds are over no case is started.
    """

    nodes: int | None = None
    check: Check = "refuse"
    device: Device = "cpu"
    budget_s: float | None = None
    links: bool = False

    def lab(self, workers: int, rate: str | None) -> Lab:
        count = self.nodes or workers
        if self.device == "cuda":
            return Lab(count, rate, check=self.check, gpu=True)
        if rate is None and not self.links:
            return Lab(count, loopback=True)
        return Lab(count, rate, check=self.check)

    def ranks(self, lab: Lab, workers: int, target: str) -> Workers:
        if self.device == "cuda":
            return Workers(lab, workers, target, device=self.device)
        return Workers(lab, workers, target)


HERE = Place()


def measure_cases(
    target: str,
    cases: Iterable[AnyCase],
    order: Callable[[AnyCase], Message],
    add: Callable[[AnyCase, Answers], None],
    watcher: Watcher,
    place: Place = HERE,
    fail: Callable[[AnyCase, Lab, str], None] = lambda case, lab, error: None,
) -> list[str]:
    """Give each case's `order` to ranks that run `target`, and their answers to `add`.

    A case that fails, whose ranks die in it or whose links cannot be had does not end the others:
    `fail` is told, and the failures come back in words. Cases are taken one by one: which is next
    may depend on what `add` was given.
    """
    failures: list[str] = []
    started = time.monotonic()

    def over() -> bool:
        return place.budget_s is not None and time.monotonic() - started > place.budget_s

    def note(case: AnyCase, lab: Lab, error: Exception) -> None:
        failures.append(f"{case}: {error}")
        fail(case, lab, str(error))

    for (workers, rate), group in groupby(cases, lambda case: (case.workers, case.rate)):
        if over():
            break
        watcher.start(f"starting {workers} workers")
        lab = place.lab(workers, rate)
        try:
            with lab:
                ranks = place.ranks(lab, workers, target)
                for case in group:
                    if over():
                        break
                    watcher.start(str(case))
                    load = LoadMeter()
                    try:
                        answers = ranks.run(order(case), watcher.advance)
                    except WorkerError as error:
                        note(case, lab, error)
                        if not isinstance(error, CaseError):  # they are no more
                            lab.end_processes()
                            ranks = place.ranks(lab, workers, target)
                        continue
                    own_seconds = sum(answer["cpu_seconds"] for answer in answers)
                    add(case, Answers(lab, answers, load.others(own_seconds)))
        except LabError as error:  # links that do not carry this rate may carry another
            for case in group:
                note(case, lab, error)
    return failures


def setting_of(case: Case, lab: Lab) -> Row:
    """What was measured where, as all rows have it."""
    check = lab.rate_check
    return {
        "recipe": case.recipe,
        "peer": case.recipe in PEERS,
        "workers": case.workers,
        "nodes": len(lab.nodes),
        "rate": None if case.rate is None else bits_per_second(case.rate) / 1e6,
        "rate_measured": None if check is None else round(check.measured / 1e6, 1),
        "density": case.density,
    }


def in_words(case: Case, what: str) -> str:
    """`topk(0.01), resnet18 × 4 at 1gbit`."""
    density = "" if case.density is None else f"({case.density:g})"
    return f"{case.recipe}{density}, {what} × {case.workers} at {case.rate or 'loopback'}"
