"""Density warm-up: send more while gradients change fast."""

from dataclasses import dataclass

from thinwire.settings import check_density, check_integer


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The given densities for `steps` steps each; after them the sparsifier's own.

    The defaults are gTop-k's (section 4, after DGC), whose stages are epochs: set `steps` to
    the steps of an epoch. Every rank counts the same steps, so every rank changes at once.
    """

    steps: int
    densities: tuple[float, ...] = (0.25, 0.0725, 0.015, 0.004)

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, 1)
        for density in self.densities:
            check_density(density)

    @classmethod
    def towards(cls, density: float, steps: int, stages: int = 4) -> "WarmUp":
        """`steps` steps in all, in equal stages that fall from 1 by the same factor each time.

        >>> WarmUp.towards(0.01, 400, stages=3).densities
        (0.31622776601683794, 0.1, 0.03162277660168379)
        """
        factors = (density ** (stage / (stages + 1)) for stage in range(1, stages + 1))
        return cls(max(1, steps // stages), tuple(factors))

    def at(self, step: int) -> float | None:
        """The density of a step, or None once the warm-up is over."""
        stage = step // self.steps
        return self.densities[stage] if stage < len(self.densities) else None
