"""What experiments measure with: the benches and the cost model, asked in a few words.

Nothing is trained twice: runs that two figures share are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TypeVar

from thinwire.bench.converge import plan as learning
from thinwire.bench.converge import run as learning_run
from thinwire.bench.sync import run as syncing
from thinwire.bench.timing import Quiet, Watcher
from thinwire.bench.train import plan as training
from thinwire.bench.train import run as training_run
from thinwire.collective import OkTopK
from thinwire.cookbook import recipe
from thinwire.cost.exchange import Load, Pattern, end_of_step
from thinwire.cost.network import Link, Network
from thinwire.cost.patterns import boundary_stages, pattern, threshold_stages
from thinwire.cost.predict import load_of, predict
from thinwire.errors import ThinwireError
from thinwire.report.converge import REFERENCE
from thinwire.results.curves import is_run
from thinwire.results.file import ResultFile, Row
from thinwire.workloads.lessons import Optimizer

DENSE = REFERENCE  # PyTorch's bf16 hook, which `bench converge` always runs
RARELY = 10**6  # steps between evaluations that are counted apart
AnyScale = TypeVar("AnyScale")


class Inner:
    """Of a bench inside of an experiment: its cases are shown, its steps are not counted."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def start(self, what: str) -> None:
        self._watcher.start(what)

    def advance(self, note: str = "", steps: int = 1) -> None:
        pass


@dataclass(frozen=True)
class Lesson:
    """What is learnt, and how: with SGD and momentum, as the papers do, unless they do not."""

    model: str = "resnet-small"
    workers: int = 4
    steps: int = 80
    rate: float = 0.1
    seeds: int = 2
    optimizer: Optimizer = "sgd"


@dataclass
class Measures:
    """`quick` is for trying out the command: everything runs, and nothing it says counts."""

    watcher: Watcher = field(default_factory=Quiet)
    quick: bool = False
    _runs: dict[Lesson, list[Row]] = field(default_factory=dict)

    def scale(self, whole: AnyScale, quick: AnyScale) -> AnyScale:
        return quick if self.quick else whole

    def learn(self, lesson: Lesson, recipes: Sequence[str]) -> dict[str, list[Row]]:
        """The runs of each recipe, dense first; one for each seed."""
        if self.quick:
            lesson = Lesson("transformer-tiny", 2, 4, 0.1, 1)
        known = self._runs.setdefault(lesson, [])
        results = ResultFile(None, rows=known)
        settings = learning.Settings(
            models=(lesson.model,),
            optimizers=(lesson.optimizer,),
            recipes=tuple(recipes),
            workers=lesson.workers,
            rates=(),
            seeds=lesson.seeds,
            learning_rates=(lesson.rate,),
            steps=lesson.steps,
            every=max(1, lesson.steps // 8),
            series=True,
        )
        failures = learning_run.run(settings, results, Inner(self.watcher))
        if failures:
            raise ThinwireError("\n".join(failures))
        known[:] = [row for row in results.rows if is_run(row)]
        return {name: [row for row in known if row["recipe"] == name] for name in (DENSE, *recipes)}

    def sync(self, recipes: Sequence[str], n: int, workers: Sequence[int]) -> list[Row]:
        """One synchronisation over the loopback: bytes by the kernel's counters, seconds."""
        results = ResultFile(None)
        settings = syncing.Settings(
            recipes=tuple(recipes),
            n=(self.scale(n, 4096),),
            workers=tuple(self.scale(list(workers), [2])),
            rates=(None,),
            steps=self.scale(6, 1),
            warmup=self.scale(3, 1),
        )
        failures = syncing.run(settings, results, Inner(self.watcher))
        if failures:
            raise ThinwireError("\n".join(failures))
        return results.rows

    def train(
        self, model: str, recipes: Sequence[str], workers: int, steps: int
    ) -> dict[str, list[Row]]:
        """`bench train` over the loopback: each recipe's rows, with loss and bytes."""
        results = ResultFile(None)
        settings = training.Settings(
            models=(model,),
            recipes=tuple(recipes),
            workers=(self.scale(workers, 2),),
            rates=(None,),
            steps=self.scale(steps, 3),
            target_loss=99.0,  # all train for as long
        )
        failures = training_run.run(settings, results, Inner(self.watcher))
        if failures:
            raise ThinwireError("\n".join(failures))
        names = dict.fromkeys(row["recipe"] for row in results.rows)
        return {name: [row for row in results.rows if row["recipe"] == name] for name in names}


def exchange(
    name: str, n: int, workers: int, link: Link, alike: float = 0.25
) -> tuple[float, float]:
    """Seconds and bytes per rank of one exchange, in the α-β model."""
    prediction = predict(recipe(name), {"gradient": (n,)}, workers, Network(link), alike=alike)
    return prediction.busy, sum(unit.sent for unit in prediction.units)


def on_sockets(name: str, row: Row) -> float:
    """Bytes per rank and step in the cost model, Gloo's frames included, of what `sync` measured.

    What the model cannot know it is told: how many were selected and survived, how much the ranks
    have in common, and how often Ok-Topk evaluated; a short run does that more often than a long
    one.
    """
    pipeline, n, workers, told = recipe(name), row["n"], row["workers"], row["series"]
    collective, load = pipeline.collective, load_of(pipeline, n, workers)
    more = [end_of_step(workers)]
    if not load.dense:
        load = replace(load, k=row["k"])
    if "union_count" in told:
        load = replace(load, alike=_alike(load, told["union_count"]))
    if isinstance(collective, OkTopK):
        evaluations = threshold_stages(workers), told["threshold_evaluated"]
        agreements = boundary_stages(workers, collective.consensus), told["regions_agreed"]
        for stages, share in (evaluations, agreements):
            more += [stage.times(share) for stage in stages]
        collective = replace(
            collective,
            density=told["global_count"] / n,
            threshold_interval=RARELY,
            boundary_interval=RARELY,
        )
    return pattern(collective, pipeline.codec, load).framed + Pattern(tuple(more)).framed


def _alike(load: Load, union: float) -> float:
    """The share of a selection that is everyone's, where all selections together are so many."""
    low, high = 0.0, 1.0
    for _ in range(40):  # the union shrinks as it grows
        middle = (low + high) / 2
        larger = replace(load, alike=middle).union(load.n, load.k) > union
        low, high = (middle, high) if larger else (low, middle)
    return low


def final(runs: Sequence[Row]) -> float:
    """The mean over the seeds of the last held-out loss."""
    return fmean(row["final_loss"] for row in runs)


def seeds_apart(runs: Sequence[Row], what: str = "held_out_loss") -> float:
    """How far the last losses of two seeds are apart: what no statement can be finer than."""
    last: list[float] = [row["points"][what][-1] for row in runs]
    return max(last) - min(last)


def mean_points(runs: Sequence[Row], what: str = "held_out_loss") -> tuple[list[int], list[float]]:
    """Steps, and the mean over the seeds at each."""
    steps: list[int] = runs[0]["points"]["step"]
    each = (run["points"][what] for run in runs)
    return steps, [fmean(at) for at in zip(*each, strict=True)]


def sent_per_step(runs: Sequence[Row]) -> float:
    """Bytes per rank, the mean over a run and the seeds."""
    return fmean(run["points"]["bytes"][-1] / run["points"]["step"][-1] for run in runs)
