"""What pieces tell of their steps, step by step: thresholds, counts, ξ. Bounded memory."""

from collections import deque
from typing import Any

KEPT = 1000  # of the latest steps, of each series: a unit for each tensor makes many of them


class Series:
    """Numbers by unit (or tensor), by what they are, and by step."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._of: dict[str, dict[str, deque[tuple[int, float]]]] = {}

    def add(self, tensor: str, step: int, what: str, value: float) -> None:
        """Enter a number; a step that is done again, as after `undo`, takes the earlier's place."""
        series = self._of.setdefault(tensor, {}).setdefault(what, deque(maxlen=self._kept))
        while series and series[-1][0] >= step:
            series.pop()
        series.append((step, value))

    def rows(self) -> dict[str, Any]:
        """As `stats()` shows it: by unit and name, the steps and the values at them."""
        return {
            tensor: {
                what: {"steps": [step for step, _ in one], "values": [value for _, value in one]}
                for what, one in list(named.items())
            }
            for tensor, named in list(self._of.items())
        }
