"""From times to a choice: pure arithmetic, the same on every rank that has the same numbers."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

DENSE = "dense"
BY = " by "  # between a method and its unit, in a label
WORTH = 0.97  # of dense's time: what saves less than 3 % is not worth what it leaves out
OPTIMISM, HOPE = 0.7, 0.9  # what was not tried may be so much quicker; a variant of what was
ALIKE = 1.05  # times within 5 % of each other are one
TRIALS = 6  # choices that are tried at most, beside dense
BUDGET = 4.0  # dense steps that trials may have lost, after which no other is begun

Seconds = Mapping[str, float]
"""Of a step, by label; or of a step's units, by name."""


def typical(seen: Sequence[float]) -> float:
    """The median; of an even number the lower one: what disturbs a step only makes it longer."""
    return sorted(seen)[(len(seen) - 1) // 2]


def next_trial(predicted: Seconds, tried: Seconds, method: Callable[[str], str]) -> str | None:
    """What to try next: the choice that may be fastest, if it may be faster than all so far.

    Predictions are corrected by how far off those of the same method were, or else of all.
    """
    off = {label: s / predicted[label] for label, s in tried.items() if label != DENSE}

    def expected(label: str) -> float:
        variants = [ratio for known, ratio in off.items() if method(known) == method(label)]
        if variants:
            return HOPE * median(variants) * predicted[label]
        return OPTIMISM * median(off.values() or [1.0]) * predicted[label]

    untried = [label for label in predicted if label not in tried]
    label = min(untried, key=expected, default=None)
    return label if label is not None and expected(label) < min(tried.values()) else None


def fastest(tried: Seconds) -> str:
    """The choice for the whole model: dense, unless another takes clearly less."""
    others = [label for label in tried if label != DENSE]
    best = min(others, key=lambda label: tried[label], default=DENSE)
    return best if tried[best] <= WORTH * tried[DENSE] else DENSE


def lost(took: Sequence[float], dense: float) -> float:
    """How many dense steps' time these steps took more than so many dense ones."""
    return sum(max(0.0, seconds - dense) for seconds in took) / dense if dense else 0.0


def cheapest(costs: Mapping[str, Seconds]) -> dict[str, str]:
    """The choice for each unit for itself: dense, unless another takes clearly less."""

    def choice(unit: str) -> str:
        others = [label for label in costs if label != DENSE]
        best = min(others, key=lambda label: costs[label][unit], default=DENSE)
        return best if costs[best][unit] < WORTH * costs[DENSE][unit] else DENSE

    return {unit: choice(unit) for unit in costs[DENSE]}
