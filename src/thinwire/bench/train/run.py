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

from dataclasses import dataclass, field

from thinwire.bench.peers import BASELINE
from thinwire.bench.runner import Answers, Place, measure_cases
from thinwire.bench.timing import Watcher
from thinwire.bench.train.curve import Run
from thinwire.bench.train.plan import Case, Settings, order, plan
from thinwire.lab.rank_main import Message
from thinwire.results.file import ResultFile, Row

TARGET = "thinwire.bench.train.case:measure"
SPEEDUPS = {"speedup_over_dense": "step_seconds", "speedup_to_target": "seconds_to_target"}


@dataclass
class Baselines:
    """What the baseline reached, for those after it to be compared with."""

    asked: float | None  # the target loss, where the user gave one
    losses: dict[tuple[int, str], float] = field(default_factory=dict)
    rows: dict[tuple[object, ...], Row] = field(default_factory=dict)

    def target(self, case: Case) -> float | None:
        """The loss to reach; None before the baseline has set it."""
        if not case.learns:
            return None
        return self.losses.get((case.workers, case.model), self.asked)

    def note(self, case: Case, measured: Run) -> None:
        """Let the end of the first baseline be the target, unless the user asked for another."""
        if case.learns and case.recipe == BASELINE and self.target(case) is None:
            self.losses[case.workers, case.model] = measured.smoothed(case)[-1]

    def speedups(self, case: Case, last: Row) -> Row:
        """How many times shorter than the baseline's; None if one of them has no time."""
        place = (case.workers, case.rate, case.model, case.overlap)
        if case.recipe == BASELINE:
            self.rows[place] = last
        baseline = self.rows.get(place, {})
        return {
            speedup: baseline[seconds] / last[seconds]
            if baseline.get(seconds) is not None and last[seconds] is not None
            else None
            for speedup, seconds in SPEEDUPS.items()
        }


def run(settings: Settings, results: ResultFile, watcher: Watcher) -> list[str]:
    """Measure everything, run by run into `results`; what failed, in words."""
    baselines = Baselines(settings.target_loss)

    def order_to(case: Case) -> Message:
        return order(case, baselines.target(case))

    def add(case: Case, answers: Answers) -> None:
        measured = Run.of(answers)
        watcher.advance(steps=case.max_steps - len(measured.seconds))  # those that need not be run
        baselines.note(case, measured)
        rows = measured.curve(case, answers.lab)
        rows[-1] |= measured.summary(case, settings.warmup)
        rows[-1] |= measured.to_target(case, baselines.target(case))
        rows[-1] |= baselines.speedups(case, rows[-1])
        rows[-1]["cores_busy_with_other_work"] = answers.other_load
        results.add(rows)

    cases = plan(settings)
    place = Place(settings.nodes, settings.check, budget_s=settings.budget_s)
    return measure_cases(TARGET, cases, order_to, add, watcher, place)
