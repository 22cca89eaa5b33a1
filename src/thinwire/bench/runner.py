"""Cases on ranks, lab by lab: the loop that `bench sync`, `bench train` and the demo share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, TypeVar

from thinwire.bench.peers import PEERS
from thinwire.bench.timing import LoadMeter, Watcher
from thinwire.lab import Lab
from thinwire.lab.lab import Check
from thinwire.lab.links import bits_per_second
from thinwire.lab.rank_main import Message
from thinwire.lab.ranks import CaseError, Workers
from thinwire.results.file import Row


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


def measure_cases(
    target: str,
    cases: Sequence[AnyCase],
    order: Callable[[AnyCase], Message],
    add: Callable[[AnyCase, Answers], None],
    watcher: Watcher,
    nodes: int | None = None,
    check: Check = "refuse",
) -> list[str]:
    """Give each case's `order` to ranks that run `target`, and their answers to `add`.

    Without `nodes` every worker has its own. A case that fails does not end the others: the
    failures come back in words.
    """
    failures: list[str] = []
    for (workers, rate), group in groupby(cases, lambda case: (case.workers, case.rate)):
        watcher.start(f"starting {workers} workers")
        count = nodes or workers
        with Lab(count, loopback=True) if rate is None else Lab(count, rate, check=check) as lab:
            ranks = Workers(lab, workers, target)
            for case in group:
                watcher.start(str(case))
                load = LoadMeter()
                try:
                    answers = ranks.run(order(case), watcher.advance)
                except CaseError as error:
                    failures.append(f"{case}: {error}")
                    continue
                own_seconds = sum(answer["cpu_seconds"] for answer in answers)
                add(case, Answers(lab, answers, load.others(own_seconds)))
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
