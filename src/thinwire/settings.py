"""Density: the share of a tensor's elements that is sent."""

from thinwire.errors import RecipeError


def check_density(density: float) -> None:
    """Refuse what is not a share of the elements."""
    if not 0 < density <= 1:
        raise RecipeError(f"density={density} must be in (0, 1]")


def target_count(numel: int, density: float, scheduled: float | None) -> int:
    """k: how many of `numel` to take. A schedule's density comes before the piece's own."""
    if scheduled is not None:
        check_density(scheduled)
        density = scheduled
    return max(1, round(density * numel)) if numel else 0
