"""Checks of settings, one family for all pieces, and what a density means in elements."""

import math
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any

from thinwire.errors import RecipeError


def check_range(
    name: str,
    value: float,
    low: float,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Refuse a number outside [low, high]; an open end does not belong to the range."""
    inside = isinstance(value, int | float) and not isinstance(value, bool)
    inside = inside and (low < value if open_low else low <= value)
    inside = inside and (value < high if open_high else value <= high)
    if not inside:
        interval = f"{'(' if open_low else '['}{low}, {high}{')' if open_high else ']'}"
        if high == math.inf and not open_high:
            interval = f"above {low}" if open_low else f"at least {low}"
        else:
            interval = f"in {interval}"
        number = "" if isinstance(value, int | float) else "a number "
        raise RecipeError(f"{name}={value!r} must be {number}{interval}")


def check_integer(name: str, value: int, low: int, high: int | None = None) -> None:
    """Refuse what is not an integer from `low` to `high`."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        limits = f"of at least {low}" if high is None else f"in {low} … {high}"
        raise RecipeError(f"{name}={value!r} must be an integer {limits}")


def check_choice(name: str, value: object, choices: Collection[Any]) -> None:
    """Refuse what is not one of these."""
    if value not in choices:
        raise RecipeError(f"{name}={value!r} must be one of {', '.join(map(str, choices))}")


def near(name: object, known: Iterable[str]) -> str:
    """A name that may have been meant, as words in parentheses; empty where none is like it.

    >>> near("TopK", ["dense", "topk"])
    " (did you mean 'topk'?)"
    """
    likely = get_close_matches(str(name).lower().replace("_", "-"), list(known), n=1)
    return f" (did you mean {likely[0]!r}?)" if likely else ""


def check_density(density: float, name: str = "density") -> None:
    """Refuse what is not a share of the elements."""
    check_range(name, density, 0, 1, open_low=True)


def target_count(numel: int, density: float, scheduled: float | None) -> int:
    """k: how many of `numel` to take. A schedule's density comes before the piece's own."""
    if scheduled is not None:
        check_density(scheduled)
        density = scheduled
    return max(1, round(density * numel)) if numel else 0
