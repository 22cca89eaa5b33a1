"""Which recipes are trained on which task, and with what settings."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import thinwire as tw
from thinwire.bench.train.tuning import DENSITY, tuning
from thinwire.errors import RecipeError
from thinwire.settings import check_density
from thinwire.workloads.tasks import TASKS

BASELINE = "dense"
WARM_UP = 0.1  # of the steps, in which the density falls to that (gTop-k, section 4, after DGC)


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
    notes = {recipe: tuning(recipe).differences() for recipe in recipes}
    return "; ".join(f"{recipe}: {note}" for recipe, note in notes.items() if note)


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
    own = tuning(recipe)
    steps = settings.steps or (task.quick_steps if settings.quick else task.steps)
    return Job(
        recipe=recipe,
        task=task_name,
        steps=steps,
        seed=seed,
        learning_rate=task.learning_rate * own.learning_rate_factor,
        momentum=own.momentum,
        arguments=_density(recipe, settings.density, steps) | own.arguments,
    )


def _density(recipe: str, density: float, steps: int) -> dict[str, object]:
    """The density for recipes that have one, and the way down to it."""
    try:
        tw.recipe(recipe, density=density)
    except RecipeError:
        return {}
    warm_up = tw.WarmUp.towards(density, math.ceil(WARM_UP * steps))
    return {"density": density, "warm_up": asdict(warm_up)}
