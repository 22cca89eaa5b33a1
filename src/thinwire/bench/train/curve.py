"""What the ranks of a training run answered, step by step, and the rows that follow its loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from thinwire.bench.runner import Answers, setting_of
from thinwire.bench.timing import Spread
from thinwire.bench.train.case import smoothed
from thinwire.bench.train.plan import Case, parameters
from thinwire.lab import Lab
from thinwire.results.file import Row

POINTS = 40  # rows kept of a run: enough for a smooth curve


@dataclass(frozen=True)
class Run:
    """All ranks' answers put together, step by step. A step lasts as long as its slowest rank."""

    seconds: list[float]
    losses: list[float]
    bytes_sent: list[float] | None  # per rank
    phases: dict[str, float]

    @classmethod
    def of(cls, answers: Answers) -> "Run":
        """With bytes as the links or else the sockets count them."""
        ranks = answers.ranks
        bytes_sent = _per_rank([node["link_bytes"] for node in answers.nodes], len(ranks))
        if bytes_sent is None:
            bytes_sent = _per_rank([rank["socket_bytes"] for rank in ranks], len(ranks))
        return cls(
            [max(step) for step in zip(*(rank["seconds"] for rank in ranks), strict=True)],
            ranks[0]["losses"],
            bytes_sent,
            {phase: fmean(rank["phases"][phase] for rank in ranks) for phase in ranks[0]["phases"]},
        )

    def smoothed(self, case: Case) -> list[float]:
        ends = range(1, len(self.losses) + 1)
        return [smoothed(self.losses[:end], case.window) for end in ends]

    def summary(self, case: Case, warmup: int) -> Row:
        """What only the end of a run knows; times leave the first `warmup` steps out."""
        times = Spread.of(self.seconds[warmup:])
        return {
            "step_seconds": times.median,
            "step_seconds_min": times.low,
            "step_seconds_max": times.high,
            "step_seconds_iqr": times.iqr,
            "exposed_seconds": None if case.learns else max(0.0, times.median - case.compute),
            "seconds_by_phase": self.phases,
            "steps": len(self.seconds),
            "warmup": warmup,
            "learning_rate": case.learning_rate,
            "momentum": case.momentum,
            "final_loss": self.smoothed(case)[-1] if case.learns else None,
        }

    def to_target(self, case: Case, target: float | None) -> Row:
        """When the target, if there is one, was reached."""
        seconds = None
        if target is not None:
            steps = zip(accumulate(self.seconds), self.smoothed(case), strict=True)
            seconds = next((passed for passed, loss in steps if loss <= target), None)
        return {"target_loss": target, "seconds_to_target": seconds}

    def curve(self, case: Case, lab: Lab) -> list[Row]:
        """About `POINTS` rows, evenly spaced, with the first and the last step among them."""
        steps = len(self.seconds)
        ends = sorted({1, *range(steps, 0, -max(1, steps // POINTS))})
        seconds = list(accumulate(self.seconds))
        sent = None if self.bytes_sent is None else list(accumulate(self.bytes_sent))
        about = setting_of(case, lab) | {
            "model": case.model,
            "parameters": parameters(case.model),
            "overlap": case.overlap,
            "compute_seconds": case.compute,
            "seed": case.seed,
        }
        return [
            {
                **about,
                "step": end,
                "loss": fmean(self.losses[start:end]) if case.learns else None,
                "seconds": seconds[end - 1],
                "bytes_sent_per_rank": None if sent is None else round(sent[end - 1]),
            }
            for start, end in zip([0, *ends], ends, strict=False)
        ]


def _per_rank(counts: Sequence[Sequence[int | None]], ranks: int) -> list[float] | None:
    """The sum of each step's counts, shared out to the ranks; None where they were not counted."""
    steps = []
    for step in zip(*counts, strict=True):
        known = [count for count in step if count is not None]
        if len(known) < len(step):
            return None
        steps.append(sum(known) / ranks)
    return steps
