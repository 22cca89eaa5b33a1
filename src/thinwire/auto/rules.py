"""From costs to a choice: pure arithmetic, the same on every rank that has the same numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

DENSE = "dense"
WORTH = 0.97  # of dense's time: what saves less than 3 % is not worth what it leaves out
OPTIMISM = 0.7  # predictions may be so far too high; a trial will tell
FINALISTS = 4

Seconds = Mapping[str, float]
"""By unit."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What steps took: from end to end, compute included, and each unit of them."""

    step: float
    units: dict[str, float]

    @property
    def busy(self) -> float:
        """Seconds of all units, hidden behind compute or not."""
        return sum(self.units.values())


def middle(seen: list[Measured]) -> Measured:
    """The median of several steps, each number for itself."""
    units = {unit: median(m.units[unit] for m in seen) for unit in seen[0].units}
    return Measured(median(m.step for m in seen), units)


def is_worth(chosen: Measured, dense: Measured) -> bool:
    """Whether whole steps are clearly faster, and the units' own times account for it.

    Either alone is not enough: exchange may hide behind compute, and compute may vary.
    """
    saved = dense.busy - chosen.busy
    return chosen.step <= WORTH * dense.step and saved >= (1 - WORTH) * dense.step


def finalists(predicted: Mapping[str, Seconds], dense: Seconds) -> list[str]:
    """Which choices to try, the most promising first: those that may save anything at all."""

    def saving(label: str) -> float:
        return sum(
            max(0.0, dense[unit] - OPTIMISM * seconds) for unit, seconds in predicted[label].items()
        )

    ordered = sorted(predicted, key=saving, reverse=True)
    return [label for label in ordered if saving(label) > 0][:FINALISTS]


def cheapest(costs: Mapping[str, Seconds]) -> dict[str, str]:
    """The choice for each unit: dense, unless another takes clearly less."""

    def choice(unit: str) -> str:
        others = [label for label in costs if label != DENSE]
        best = min(others, key=lambda label: costs[label][unit], default=DENSE)
        return best if costs[best][unit] < WORTH * costs[DENSE][unit] else DENSE

    return {unit: choice(unit) for unit in costs[DENSE]}
