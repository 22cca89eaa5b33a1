"""Which recipes are trained on which task, and with what settings."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import thinwire as tw
from thinwire.bench.limits import refuse_device
from thinwire.bench.runner import Device
from thinwire.bench.train.plan import Case
from thinwire.bench.train.tuning import DENSITY, tuning
from thinwire.cookbook import has_density
from thinwire.errors import RecipeError
from thinwire.settings import check_density
from thinwire.workloads.tasks import TASKS

BASELINE = "dense"
MODELS = ("text", "digits")
WARM_UP = 0.1  # of the steps, in which the density falls to that (gTop-k, section 4, after DGC)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for."""

    workers: int = 4
    recipes: tuple[str, ...] = ()  # none named: all there are
    steps: int | None = None  # none given: each task's own
    quick: bool = False
    seed: int = 0
    density: float = DENSITY
    seeds: int = 1  # runs of everything, with `seed` and those after it
    device: Device = "cpu"


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


def plan(settings: Settings) -> list[Case]:
    """All runs, recipe by recipe, so that a run broken off has whole recipes to show."""
    check_density(settings.density)
    refuse_device(settings.device)
    return [
        _case(recipe, model, seed, settings)
        for recipe in chosen_recipes(settings.recipes)
        for model in MODELS
        for seed in range(settings.seed, settings.seed + settings.seeds)
    ]


def _case(recipe: str, model: str, seed: int, settings: Settings) -> Case:
    task, own = TASKS[model], tuning(recipe)
    steps = settings.steps or (task.quick_steps if settings.quick else task.steps)
    return Case(
        settings.workers,
        rate=None,
        model=model,
        recipe=recipe,
        arguments=_density(recipe, settings.density, steps) | own.arguments,
        steps=steps,
        learning_rate=task.learning_rate * own.learning_rate_factor,
        momentum=own.momentum,
        seed=seed,
        decay=True,
        device=settings.device,
        held_out=True,
    )


def _density(recipe: str, density: float, steps: int) -> dict[str, Any]:
    """The density for recipes that have one, and the way down to it."""
    if not has_density(recipe):
        return {}
    warm_up = tw.WarmUp.towards(density, math.ceil(WARM_UP * steps))
    return {"density": density, "warm_up": asdict(warm_up)}
