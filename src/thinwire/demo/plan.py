"""Which recipes are trained on which task, and with what settings."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import thinwire as tw
from thinwire.errors import RecipeError
from thinwire.settings import check_density
from thinwire.workloads.tasks import TASKS

BASELINE = "dense"
DENSITY = 0.05  # the usual 0.01 and less is for models and runs a thousand times larger
WARM_UP = 0.1  # of the steps, in which the density falls to that (gTop-k, section 4, after DGC)


@dataclass(frozen=True)
class Override:
    """What a recipe needs here that its defaults, made for large models, do not give."""

    arguments: dict[str, object] = field(default_factory=dict)
    momentum: float = 0.9
    learning_rate_factor: float = 1.0


OVERRIDES: dict[str, Override] = {
    # Its momentum correction already carries the momentum.
    "dgc": Override(momentum=0.0),
    "dragonn": Override(momentum=0.0),
    # A value waits 1/density steps for its turn, whatever its size: momentum would overshoot.
    "randomk": Override(momentum=0.0, learning_rate_factor=2.0),
    # A model of a hundred thousand weights has few blocks of hundreds to choose from.
    "omnireduce": Override({"block": 32}),
    "union": Override({"block": 32}),
    # One scale a tensor moves small elements as far as large ones.
    "signsgd": Override(learning_rate_factor=0.7),
    # Unbiased, and noisy in return: three levels want a shorter stride.
    "terngrad": Override(learning_rate_factor=0.5),
}


@dataclass(frozen=True)
class Job:
    """One training run: everything a worker needs to know, as plain values."""

    recipe: str
    task: str
    steps: int
    seed: int
    learning_rate: float
    momentum: float
    arguments: dict[str, object]


@dataclass(frozen=True)
class Settings:
    """What the user asked for."""

    workers: int = 4
    recipes: tuple[str, ...] = ()  # none named: all there are
    steps: int | None = None  # none given: each task's own
    quick: bool = False
    seed: int = 0
    out: Path = Path("runs/demo")
    density: float = DENSITY
    seeds: int = 1  # runs of everything, with `seed` and those after it


def differences(recipes: Iterable[str]) -> str:
    """In words, where a recipe was not trained exactly as the baseline was."""
    usual = Override()
    notes = []
    for recipe in recipes:
        own = OVERRIDES.get(recipe, usual)
        parts = [f"momentum {own.momentum:g}"] if own.momentum != usual.momentum else []
        if own.learning_rate_factor != 1:
            parts.append(f"{own.learning_rate_factor:g} × the learning rate")
        parts += [f"{key} {value}" for key, value in own.arguments.items()]
        if parts:
            notes.append(f"{recipe}: {', '.join(parts)}")
    return "; ".join(notes)


def chosen_recipes(names: Sequence[str]) -> list[str]:
    """The named recipes, or all; the baseline always comes first, the others refer to it.

    `auto` must be asked for: it goes by time, and on one machine that leads to the baseline.
    """
    known = list(tw.recipes())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise RecipeError(f"unknown recipe {unknown[0]!r}; there are: {', '.join(known)}")
    chosen = names or [name for name in known if name != "auto"]
    return list(dict.fromkeys([BASELINE, *chosen]))


def plan(settings: Settings) -> list[Job]:
    """All runs, recipe by recipe, so that a run broken off has whole recipes to show."""
    check_density(settings.density)
    return [
        _job(recipe, task, seed, settings)
        for recipe in chosen_recipes(settings.recipes)
        for task in TASKS
        for seed in range(settings.seed, settings.seed + settings.seeds)
    ]


def _job(recipe: str, task_name: str, seed: int, settings: Settings) -> Job:
    task = TASKS[task_name]
    override = OVERRIDES.get(recipe, Override())
    steps = settings.steps or (task.quick_steps if settings.quick else task.steps)
    return Job(
        recipe=recipe,
        task=task_name,
        steps=steps,
        seed=seed,
        learning_rate=task.learning_rate * override.learning_rate_factor,
        momentum=override.momentum,
        arguments=_density(recipe, settings.density, steps) | override.arguments,
    )


def _density(recipe: str, density: float, steps: int) -> dict[str, object]:
    """The density for recipes that have one, and the way down to it."""
    try:
        tw.recipe(recipe, density=density)
    except RecipeError:
        return {}
    warm_up = tw.WarmUp.towards(density, math.ceil(WARM_UP * steps))
    return {"density": density, "warm_up": asdict(warm_up)}
