"""What `thinwire bench train` is asked for, and what of it can be done."""

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from thinwire.bench.limits import refuse_links, refuse_workers_in_memory
from thinwire.bench.peers import BASELINE, PEERS, SPARSE_PEERS, takes_density
from thinwire.bench.runner import Device, in_words
from thinwire.bench.train.hooks import DDP_PEERS
from thinwire.bench.train.tuning import DENSITY as TASK_DENSITY
from thinwire.bench.train.tuning import tuning
from thinwire.cookbook import at_density
from thinwire.errors import ThinwireError
from thinwire.lab.lab import Check
from thinwire.lab.rank_main import Message
from thinwire.settings import check_density
from thinwire.workloads.compute import declared_compute
from thinwire.workloads.real import REAL
from thinwire.workloads.shapes import MODELS, multiply_adds, shapes
from thinwire.workloads.tasks import TASKS

SHAPE_DENSITY = 0.01
SHAPE_STEPS = 10
PATIENCE = 2  # times the steps: how long a run may go on that has not reached the target
RANK_GIB = 0.4  # of an interpreter with torch and the tasks' data
COPIES = 7  # of the gradient that a rank may hold at once: buckets, state, workspaces


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. None stands for each model's own."""

    models: tuple[str, ...] = ("resnet18", "text")
    recipes: tuple[str, ...] = ("topk", "ok-topk", "union")
    workers: tuple[int, ...] = (4,)
    nodes: int | None = None  # one per worker
    rates: tuple[str | None, ...] = ("1gbit",)  # None is the loopback
    overlap: tuple[bool, ...] = (True,)
    density: float | None = None
    compute: float | None = None  # seconds per step
    steps: int | None = None
    warmup: int = 2  # first steps that the median step leaves out
    target_loss: float | None = None
    learning_rate: float | None = None
    seed: int = 0
    check: Check = "refuse"
    budget_s: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One training run."""

    workers: int
    rate: str | None  # None is the loopback
    model: str
    recipe: str
    arguments: dict[str, Any]  # the recipe's settings
    steps: int
    learning_rate: float | None = None  # None where nothing is learnt
    momentum: float | None = None
    compute: float = 0.0  # seconds per step, declared
    overlap: bool = True
    seed: int = 0
    device: Device = "cpu"

    @property
    def density(self) -> float | None:
        density: float | None = self.arguments.get("density")
        return density

    @property
    def learns(self) -> bool:
        """Whether it trains on data, and so has a loss."""
        return self.model in TASKS

    @property
    def max_steps(self) -> int:
        return self.steps * PATIENCE if self.learns else self.steps

    @property
    def window(self) -> int:
        """Steps that a loss is averaged over before it is compared with the target."""
        return max(1, self.steps // 10)

    def __str__(self) -> str:
        return in_words(self, self.model) + ("" if self.overlap else ", no overlap")


def plan(settings: Settings) -> list[Case]:
    """All runs, in their order; each model's first is the baseline that the others refer to."""
    _refuse_impossible(settings)
    names = (BASELINE, *(name for name in dict.fromkeys(settings.recipes) if name != BASELINE))
    return [
        _case(settings, workers, rate, model, overlap, name)
        for workers in settings.workers
        for rate in settings.rates
        for model in settings.models
        for overlap in settings.overlap
        for name in names
    ]


def _case(
    settings: Settings, workers: int, rate: str | None, model: str, overlap: bool, recipe: str
) -> Case:
    task, compute = TASKS.get(model), settings.compute
    if compute is None:
        compute = declared_compute(model) if task is None else 0.0
    density = settings.density or (SHAPE_DENSITY if task is None else TASK_DENSITY)
    case = Case(
        workers,
        rate,
        model,
        recipe,
        arguments={"density": density} if takes_density(recipe) else {},
        steps=settings.steps or (SHAPE_STEPS if task is None else task.steps),
        compute=compute,
        overlap=overlap,
        seed=settings.seed,
    )
    if task is None:
        return case
    own, learning_rate = tuning(recipe), settings.learning_rate or task.learning_rate
    return replace(
        case, learning_rate=learning_rate * own.learning_rate_factor, momentum=own.momentum
    )


def order(case: Case, target: float | None = None) -> Message:
    """What the ranks are told."""
    return asdict(case) | {
        "shapes": None if case.learns else shapes(case.model),
        "work": None if case.learns else multiply_adds(case.model),
        "max_steps": case.steps if target is None else case.max_steps,
        "window": case.window,
        "target": target,
    }


@lru_cache
def parameters(model: str) -> int:
    """How many the model has."""
    if model in TASKS:
        return sum(p.numel() for p in TASKS[model].model().parameters())
    return sum(prod(shape) for shape in shapes(model).values())


def _refuse_impossible(settings: Settings) -> None:
    """Before anything is started: a run should not end in its tenth minute for this."""
    for model in settings.models:
        if model not in TASKS and model not in MODELS:
            known = ", ".join((*TASKS, *MODELS))
            real = f"; {model} is trained with --device" if model in REAL else ""
            raise ThinwireError(f"unknown model {model!r}; there are: {known}{real}")
    if not any(model in TASKS for model in settings.models):
        learns = {"target-loss": settings.target_loss, "lr": settings.learning_rate}
        for name, value in learns.items():
            if value is not None:
                raise ThinwireError(
                    f"--{name} {value:g} does nothing: {', '.join(settings.models)} learns nothing;"
                    f" {', '.join(TASKS)} do"
                )
    for name in settings.recipes:
        if name in SPARSE_PEERS:
            raise ThinwireError(
                f"{name} is no DDP hook: `bench sync` measures it; here: {', '.join(DDP_PEERS)}"
            )
        if name not in PEERS:
            at_density(name, settings.density)  # a misspelt recipe is found before anything runs
    if settings.steps is not None and settings.steps <= settings.warmup:
        raise ThinwireError(
            f"steps={settings.steps} must be more than warmup={settings.warmup}, its first ones"
        )
    if settings.compute is not None and settings.compute < 0:
        raise ThinwireError(f"compute={settings.compute} s must not be negative")
    if settings.density is not None:
        check_density(settings.density)
    if settings.learning_rate is not None and not settings.learning_rate > 0:
        raise ThinwireError(f"lr={settings.learning_rate} must be above 0")
    refuse_links(settings.workers, settings.nodes, settings.rates)
    largest = max(settings.models, key=parameters)
    count = parameters(largest)
    what = f"{largest} ({count:,} parameters)"
    refuse_workers_in_memory(max(settings.workers), RANK_GIB, COPIES * count, what)
