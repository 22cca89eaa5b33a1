"""How the small tasks are trained: the density, and what some recipes need there."""

from dataclasses import dataclass, field

DENSITY = 0.05  # the usual 0.01 and less is for models and runs a thousand times larger


@dataclass(frozen=True, slots=True)
class Tuning:
    """What differs from the task's own settings and from the recipe's defaults."""

    arguments: dict[str, object] = field(default_factory=dict)
    momentum: float = 0.9
    learning_rate_factor: float = 1.0


USUAL = Tuning()
_TUNED: dict[str, Tuning] = {
    # Its momentum correction already carries the momentum.
    "dgc": Tuning(momentum=0.0),
    "dragonn": Tuning(momentum=0.0),
    # A value waits 1/density steps for its turn, whatever its size: momentum would overshoot.
    "randomk": Tuning(momentum=0.0, learning_rate_factor=2.0),
    # A model of a hundred thousand weights has few blocks of hundreds to choose from.
    "omnireduce": Tuning({"block": 32}),
    "union": Tuning({"block": 32}),
    # One scale per tensor moves small elements as far as large ones.
    "signsgd": Tuning(learning_rate_factor=0.7),
    # Unbiased, and noisy in return: three levels need smaller steps.
    "terngrad": Tuning(learning_rate_factor=0.5),
}


def tuning(recipe: str) -> Tuning:
    """A recipe's own, or the usual."""
    return _TUNED.get(recipe, USUAL)
