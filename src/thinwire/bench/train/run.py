"""`thinwire bench train`: step time, and loss against wall-clock, models × recipes × rates.

A run has a row for each of at most `POINTS` steps. `loss` is the mean over the ranks and over the
steps since the row before (null for models that are shapes alone), `seconds` and
`bytes_sent_per_rank` are sums since the start of training. A step lasts as long as its slowest
rank; what the bench does between the steps is not counted.

The last row of a run also sums it up: `step_seconds` is the median over the steps after the
warm-up, `exposed_seconds` what is left of it without the declared compute, `final_loss` the loss
averaged over the last tenth of the steps, and `seconds_to_target` when a loss averaged so first was
at the target (null if never). A run that has not reached it goes on for up to `PATIENCE` times the
steps. Both speed-ups refer to PyTorch's allreduce with the same overlap.

Bytes are what the links carried, headers included; on the loopback the payload written to the
rank's own sockets, and null where the kernel does not count that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from statistics import fmean
from typing import Any

from thinwire.bench.peers import BASELINE, PEERS
from thinwire.bench.timing import LoadMeter, Spread, Watcher
from thinwire.bench.train.case import smoothed
from thinwire.bench.train.plan import Case, Settings, order, parameters, plan
from thinwire.lab import Lab
from thinwire.lab.links import bits_per_second
from thinwire.lab.rank_main import Message
from thinwire.lab.ranks import CaseError, Workers, lab_of
from thinwire.results.file import ResultFile, Row

TARGET = "thinwire.bench.train.case:measure"
POINTS = 40  # rows kept of a run: enough for a smooth curve


@dataclass
class Baselines:
    """What the baseline reached, for those after it to be compared with."""

    asked: float | None  # the target loss, where the user gave one
    losses: dict[tuple[int, str], float] = field(default_factory=dict)
    rows: dict[tuple[object, ...], Row] = field(default_factory=dict)

    def target(self, case: Case) -> float | None:
        """The loss to reach; None before the baseline has set it."""
        if not case.real:
            return None
        return self.losses.get((case.workers, case.model), self.asked)

    def note(self, case: Case, measured: "Run") -> None:
        """Let the end of the first baseline be the target, unless the user asked for another."""
        if case.real and case.recipe == BASELINE and self.target(case) is None:
            self.losses[case.workers, case.model] = measured.smoothed(case)[-1]

    def gains(self, case: Case, last: Row) -> Row:
        """How many times shorter than the baseline's; None if one of them has no time."""
        place = (case.workers, case.rate, case.model, case.overlap)
        if case.recipe == BASELINE:
            self.rows[place] = last
        found: Row = {}
        for gain, what in (
            ("speedup_over_dense", "step_seconds"),
            ("speedup_to_target", "seconds_to_target"),
        ):
            theirs, mine = self.rows.get(place, {}).get(what), last[what]
            found[gain] = None if theirs is None or mine is None else theirs / mine
        return found


def run(settings: Settings, results: ResultFile, watcher: Watcher) -> list[str]:
    """Measure everything, run by run into `results`; what failed, in words."""
    failures: list[str] = []
    baselines = Baselines(settings.target_loss)
    for (workers, rate), cases in groupby(plan(settings), lambda case: (case.workers, case.rate)):
        watcher.start(f"starting {workers} workers")
        with lab_of(settings.nodes or workers, rate, settings.check) as lab:
            for rows in _measure_all(settings, lab, list(cases), baselines, watcher, failures):
                results.add(rows)
    return failures


def _measure_all(
    settings: Settings,
    lab: Lab,
    cases: Sequence[Case],
    baselines: Baselines,
    watcher: Watcher,
    failures: list[str],
) -> Iterator[list[Row]]:
    """The runs of one lab, each as soon as it is there."""
    ranks = Workers(lab, cases[0].workers, TARGET)
    for case in cases:
        watcher.start(str(case))
        load = LoadMeter()
        told = order(case, settings, baselines.target(case))
        try:
            answers = ranks.run(told, watcher.advance)
        except CaseError as error:
            failures.append(f"{case}: {error}")
            continue
        measured = Run.of(answers, len(lab.nodes))
        watcher.advance(case.max_steps - len(measured.seconds))  # those that need not be run
        baselines.note(case, measured)
        rows = curve(case, settings.seed, lab, measured)
        last = rows[-1]
        last |= measured.summary(case, settings)
        last |= to_target(case, measured, baselines.target(case))
        last |= baselines.gains(case, last)
        busy = sum(answer["cpu_seconds"] for answer in answers)
        last["cores_busy_with_other_work"] = load.others(busy)
        yield rows


@dataclass(frozen=True)
class Run:
    """All ranks' answers put together, step by step."""

    seconds: list[float]
    losses: list[float]
    bytes_sent: list[float] | None  # a rank
    phases: dict[str, float]

    @classmethod
    def of(cls, answers: Sequence[Message], nodes: int) -> "Run":
        per_node = len(answers) // nodes
        # Those of a node share its link: the first tells of it.
        links = [answer["link_bytes"] for answer in answers[::per_node]]
        sockets = [answer["socket_bytes"] for answer in answers]
        return cls(
            [max(step) for step in zip(*(a["seconds"] for a in answers), strict=True)],
            answers[0]["losses"],
            _shared_out(links, len(answers)) or _shared_out(sockets, len(answers)),
            {
                phase: fmean(answer["phases"][phase] for answer in answers)
                for phase in answers[0]["phases"]
            },
        )

    def smoothed(self, case: Case) -> list[float]:
        ends = range(1, len(self.losses) + 1)
        return [smoothed(self.losses[:end], case.window) for end in ends]

    def summary(self, case: Case, settings: Settings) -> Row:
        times = Spread.of(self.seconds[settings.warmup :])
        return {
            "step_seconds": times.median,
            "step_seconds_min": times.low,
            "step_seconds_max": times.high,
            "step_seconds_iqr": times.iqr,
            "exposed_seconds": None if case.real else max(0.0, times.median - case.compute),
            "seconds_by_phase": self.phases,
            "steps": len(self.seconds),
            "warmup": settings.warmup,
            "learning_rate": case.learning_rate,
            "momentum": case.momentum,
            "final_loss": self.smoothed(case)[-1] if case.real else None,
        }


def _shared_out(counts: Sequence[Sequence[int | None]], ranks: int) -> list[float] | None:
    """Bytes of each step, a rank; None where nobody counted."""
    steps = []
    for step in zip(*counts, strict=True):
        known = [count for count in step if count is not None]
        if len(known) < len(step):
            return None
        steps.append(sum(known) / ranks)
    return steps


def curve(case: Case, seed: int, lab: Lab, run: Run) -> list[Row]:
    """About `POINTS` rows, evenly spaced, with the first and the last step among them."""
    steps = len(run.seconds)
    ends = sorted({1, *range(steps, 0, -max(1, steps // POINTS))})
    seconds = list(accumulate(run.seconds))
    sent = None if run.bytes_sent is None else list(accumulate(run.bytes_sent))
    about, check = _about(case) | {"seed": seed}, lab.rate_check
    about["nodes"] = len(lab.nodes)
    about["rate_measured"] = None if check is None else round(check.measured / 1e6, 1)
    return [
        {
            **about,
            "step": end,
            "loss": fmean(run.losses[start:end]) if case.real else None,
            "seconds": seconds[end - 1],
            "bytes_sent_per_rank": None if sent is None else round(sent[end - 1]),
        }
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def _about(case: Case) -> dict[str, Any]:
    return {
        "recipe": case.recipe,
        "peer": case.recipe in PEERS,
        "workers": case.workers,
        "rate": None if case.rate is None else bits_per_second(case.rate) / 1e6,
        "model": case.model,
        "parameters": parameters(case.model),
        "overlap": case.overlap,
        "density": case.density,
        "compute_seconds": case.compute,
    }


def to_target(case: Case, run: Run, target: float | None) -> Row:
    """When the target, if there is one, was reached."""
    seconds = None
    if target is not None:
        steps = zip(accumulate(run.seconds), run.smoothed(case), strict=True)
        seconds = next((passed for passed, loss in steps if loss <= target), None)
    return {"target_loss": target, "seconds_to_target": seconds}
