"""`thinwire bench train --device …`: whole steps of real models, beside PyTorch's own hooks.

`step_seconds` is the median over the steps after the warm-up of the time between two ends of steps,
and the mean where only some of them exchange (`sparseloco@15`); a step ends when the last rank's
device is done with it. `above_compute_seconds` is what of it is
left without compute alone, which was measured in the same run with as many ranks at work.

`bytes_per_step` is per rank: what the links carried, by the interface's counter, headers included,
and without links the payload written to the rank's sockets. `peak_memory_bytes` is of PyTorch's
allocator in the timed steps, the largest of all ranks. `final_loss` is the mean over the ranks and
over the last tenth of `steps_trained`. A case that failed is a row with its `error` alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, quantiles

import torch

from thinwire.bench.peers import BASELINE
from thinwire.bench.runner import Answers, Place, measure_cases, setting_of
from thinwire.bench.steps.plan import Case, Settings, order, plan
from thinwire.bench.timing import Watcher
from thinwire.lab import Lab
from thinwire.report.steps import COMPUTE
from thinwire.results.file import ResultFile, Row
from thinwire.workloads.real import REAL

TARGET = "thinwire.bench.steps.case:measure"
MEASURED = (
    *("step_seconds", "step_seconds_p10", "step_seconds_p90", "above_compute_seconds"),
    *("speedup_over_dense", "bytes_per_step", "peak_memory_bytes", "memory_above_dense_bytes"),
    *("final_loss", "steps", "warmup", "steps_trained", "counted_bytes_per_step", "decision"),
)


@dataclass
class References:
    """What other rows refer to: compute alone, and PyTorch's allreduce over the same links."""

    compute: dict[tuple[int, str], float] = field(default_factory=dict)
    dense: dict[tuple[int, float | None, str], Row] = field(default_factory=dict)

    def enter(self, row: Row) -> None:
        """Remember a row that others refer to, and say of any row how it compares."""
        place = (row["workers"], row["rate"], row["model"])
        if row["recipe"] == COMPUTE:
            self.compute[row["workers"], row["model"]] = row["step_seconds"]
        if row["recipe"] == BASELINE:
            self.dense[place] = row
        compute, dense = self.compute.get((row["workers"], row["model"])), self.dense.get(place)
        if compute is not None:
            row["above_compute_seconds"] = row["step_seconds"] - compute
        if dense is not None and row["recipe"] != COMPUTE:
            row["speedup_over_dense"] = dense["step_seconds"] / row["step_seconds"]
            if row["peak_memory_bytes"] is not None:
                above = row["peak_memory_bytes"] - dense["peak_memory_bytes"]
                row["memory_above_dense_bytes"] = above


def run(
    settings: Settings, results: ResultFile, watcher: Watcher, trace: Path | None = None
) -> list[str]:
    """Measure everything, row by row into `results`; what failed, in words."""
    references = References()
    spans = None if trace is None else ResultFile(trace)
    if settings.device == "cuda":
        results.machine["gpu"] = torch.cuda.get_device_name()

    def add(case: Case, answers: Answers) -> None:
        row = _setting(case, answers.lab, settings)
        row |= measured(answers, settings.warmup + settings.steps)
        references.enter(row)
        results.add([row])
        if spans is not None:
            about = {key: row[key] for key in ("recipe", "model", "rate", "workers", "device")}
            spans.add(about | span for span in answers.ranks[0]["spans"])

    def fail(case: Case, lab: Lab, error: str) -> None:
        unknown = dict.fromkeys(MEASURED)
        last = error.strip().splitlines()[-1]
        results.add([_setting(case, lab, settings) | unknown | {"error": last}])

    place = Place(settings.nodes, settings.check, settings.device, settings.budget_s)
    cases = plan(settings)
    return measure_cases(
        TARGET, cases, lambda case: order(case, settings), add, watcher, place, fail
    )


def _setting(case: Case, lab: Lab, settings: Settings) -> Row:
    return setting_of(case, lab) | {
        "model": case.model,
        "parameters": parameters(case.model),
        "device": settings.device,
        "examples": REAL[case.model].examples,
        "seed": settings.seed,
    }


def measured(answers: Answers, most: int) -> Row:
    """Of the losses, those of the steps that all recipes take: `auto` trains longer."""
    ranks = answers.ranks
    ends = [max(step) for step in zip(*(rank["ends"] for rank in ranks), strict=True)]
    seconds = [late - early for early, late in pairwise(ends)]
    low, high = _tenths(seconds)
    losses, steps = ranks[0]["losses"][:most], len(seconds)
    last = max(1, len(losses) // 10)
    return dict.fromkeys(MEASURED) | {
        "step_seconds": (median if ranks[0]["every"] == 1 else fmean)(seconds),
        "step_seconds_p10": low,
        "step_seconds_p90": high,
        "bytes_per_step": _bytes_per_step(answers, steps),
        "peak_memory_bytes": _largest([rank["peak_memory"] for rank in ranks]),
        "final_loss": fmean(losses[-last:]),
        "steps": steps,
        "warmup": ranks[0]["warmup"],
        "steps_trained": len(losses),
        "counted_bytes_per_step": ranks[0]["counted_bytes"],
        "decision": ranks[0]["decision"],
        "error": None,
        "seconds_by_phase": {
            phase: fmean(rank["phases"][phase] for rank in ranks) for phase in ranks[0]["phases"]
        },
        "cores_busy_with_other_work": answers.other_load,
    }


def _tenths(seconds: Sequence[float]) -> tuple[float, float]:
    """What a tenth of the steps stay below, and what a tenth exceed."""
    if len(seconds) == 1:
        return seconds[0], seconds[0]
    parts = quantiles(seconds, n=10, method="inclusive")
    return parts[0], parts[-1]


def _bytes_per_step(answers: Answers, steps: int) -> int | None:
    """Of all links, shared out to the ranks; else of the ranks' own sockets."""
    links: list[int | None] = [node["link_bytes"] for node in answers.nodes]
    sockets: list[int | None] = [rank["socket_bytes"] for rank in answers.ranks]
    for counts in (links, sockets):
        known = [count for count in counts if count is not None]
        if len(known) == len(counts):
            return round(sum(known) / len(answers.ranks) / steps)
    return None


def _largest(numbers: Sequence[int | None]) -> int | None:
    return None if None in numbers else max(number for number in numbers if number is not None)


@lru_cache
def parameters(model: str) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in REAL[model].build().parameters())
