"""Density warm-up: send more while gradients change fast."""

from dataclasses import dataclass

from thinwire.density import check_density
from thinwire.errors import RecipeError


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The given densities for `steps` steps each; after them the sparsifier's own.

    The defaults are gTop-k's (section 4, after DGC), whose stages are epochs: set `steps` to
    the steps of an epoch. Every rank counts the same steps, so every rank changes at once.
    """

    steps: int
    densities: tuple[float, ...] = (0.25, 0.0725, 0.015, 0.004)

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise RecipeError(f"steps={self.steps} must be at least 1")
        for density in self.densities:
            check_density(density)

    def at(self, step: int) -> float | None:
        """The density of a step, or None once the warm-up is over."""
        stage = step // self.steps
        return self.densities[stage] if stage < len(self.densities) else None
