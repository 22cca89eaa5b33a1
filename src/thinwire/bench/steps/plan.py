"""What `thinwire bench train --device …` is asked for: real models × rates × recipes."""

from collections.abc import Iterable
from dataclasses import dataclass

import thinwire as tw
from thinwire.bench.limits import refuse_device, refuse_links
from thinwire.bench.peers import BASELINE, PEERS, takes_density
from thinwire.bench.runner import Device, in_words
from thinwire.bench.train.hooks import DDP_PEERS, JOINED
from thinwire.bench.train.rounds import rounds_of
from thinwire.cookbook import at_density
from thinwire.errors import ThinwireError
from thinwire.lab.lab import Check
from thinwire.lab.rank_main import Message
from thinwire.report.steps import COMPUTE
from thinwire.settings import check_density
from thinwire.workloads.real import REAL
from thinwire.workloads.shapes import MODELS
from thinwire.workloads.tasks import TASKS

POWER_SGD = tuple(f"torch-powersgd-{rank}" for rank in (1, 4, 32))
HALVED = "codec='regional+bf16'"
RECIPES = (
    *("torch-fp16", "torch-bf16", *POWER_SGD, "dense", "bf16", "int8", "int4"),
    *("powersgd(4, 'bf16')", "powersgd(16, 'bf16')"),
    "union({0}, dtype='bf16')",
    *(f"{name}({{0}}, {HALVED})" for name in ("topk", "dgc", "dragonn", "ok-topk")),
    *("gtopk", "omnireduce", "auto", "auto(quality='fast')"),
)  # those that the results compare; {0} is the density


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. Empty `recipes` means `RECIPES`, and `all` every one there is."""

    device: Device
    models: tuple[str, ...] = ("gpt2",)
    recipes: tuple[str, ...] = ()
    workers: tuple[int, ...] = (4,)
    nodes: int | None = None  # one per worker
    rates: tuple[str | None, ...] = ("1gbit", "10gbit", "25gbit", "100gbit", None)
    density: float = 0.01
    steps: int = 100
    warmup: int = 20
    seed: int = 0
    check: Check = "refuse"
    case_s: float = 30.0  # longer cases take fewer steps
    deadline_s: float = 120.0  # and a case that takes this long hangs
    budget_s: float | None = None
    trace: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One row to be."""

    workers: int
    rate: str | None  # None is unshaped
    model: str
    recipe: str
    density: float | None  # None where it means nothing, or is in the recipe's own words

    def __str__(self) -> str:
        return in_words(self, self.model)


def plan(settings: Settings) -> list[Case]:
    """All cases, in the order they run. Each model begins with what the others refer to.

    Compute alone, DDP's `no_sync`, does not depend on the rate and is measured once.
    """
    _refuse_impossible(settings)
    names = recipes(settings)
    cases = []
    for workers in settings.workers:
        for place, rate in enumerate(settings.rates):
            for model in settings.models:
                first = (COMPUTE, BASELINE) if place == 0 else (BASELINE,)
                cases += [
                    Case(workers, rate, model, name, own_density(name, settings.density))
                    for name in (*first, *names)
                ]
    return cases


def recipes(settings: Settings) -> list[str]:
    """As they are written in the rows, without those that are always measured."""
    names = written(settings.recipes or RECIPES, settings.density)
    return [name for name in names if name not in (BASELINE, COMPUTE)]


def written(recipes: Iterable[str], density: float) -> list[str]:
    """Each once, with `all` and the density filled in."""
    names: list[str] = []
    for name in recipes:
        names += (*DDP_PEERS, *tw.recipes()) if name == "all" else [name]
    return list(dict.fromkeys(name.replace("{0}", f"{density:g}") for name in names))


def own_density(name: str, density: float) -> float | None:
    """None where it means nothing, or is in the recipe's own words."""
    return density if name != COMPUTE and takes_density(name) else None


def refuse_recipes(names: Iterable[str], density: float) -> None:
    """Misspelt ones, and those that are no DDP hooks."""
    check_density(density)
    for name in names:
        if name in PEERS and name not in DDP_PEERS:
            raise ThinwireError(
                f"{name} is no DDP hook: `bench sync` measures it; here: {', '.join(DDP_PEERS)}"
            )
        if name not in PEERS and not rounds_of(name):
            at_density(name.removeprefix(JOINED), own_density(name, density))


def order(case: Case, settings: Settings) -> Message:
    """What the ranks are told."""
    return {
        "model": case.model,
        "recipe": case.recipe,
        "arguments": {} if case.density is None else {"density": case.density},
        "device": settings.device,
        "steps": settings.steps,
        "warmup": settings.warmup,
        "seed": settings.seed,
        "case_s": settings.case_s,
        "deadline_s": settings.deadline_s,
        "trace": settings.trace,
    }


def _refuse_impossible(settings: Settings) -> None:
    """Before anything is started: a run should not end in its tenth minute for this."""
    for model in settings.models:
        if model not in REAL:
            other = f"; {model} goes without --device" if model in (*TASKS, *MODELS) else ""
            raise ThinwireError(f"unknown model {model!r}; to train: {', '.join(REAL)}{other}")
    refuse_recipes(recipes(settings), settings.density)
    if settings.steps < 1 or settings.warmup < 0:
        raise ThinwireError("steps must be at least 1, and warmup at least 0")
    refuse_device(settings.device)
    refuse_links(settings.workers, settings.nodes, settings.rates)
