"""DRAGONN's hash selection."""

import math

import pytest
import torch

from support.sparsify import DEVICES, at, draw, left_out, select
from thinwire.errors import RecipeError
from thinwire.sparsify import HashedSlots


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("slots", [0.5, 1.0, 3.0])
def test_the_share_of_slots_filled_is_that_of_balls_in_bins(slots: float, device: str) -> None:
    """Over steps, each with a hash of its own, the mean is m·(1 - (1 - 1/m)^n)."""
    x = torch.zeros(20_000, device=device)
    n = 1000
    x[::20] = draw("normal", n, device=device).abs() + 1  # the only ones that can pass
    m = math.ceil(slots * n)
    steps = 40
    filled = [
        select(HashedSlots(n / 20_000, slots, sample=1.0), x, at(s)).count for s in range(steps)
    ]
    expected = m * (1 - (1 - 1 / m) ** n)
    # The number of filled bins varies less than a binomial of the same mean.
    deviation = math.sqrt(expected * (1 - expected / m) / steps)
    assert abs(sum(filled) / steps - expected) < 4 * deviation


def test_what_is_selected_is_large_and_never_more_than_the_slots() -> None:
    x = draw("laplace", 100_000)
    chosen = select(HashedSlots(0.01, slots=1.0), x)
    assert chosen.count <= 1000
    assert chosen.indices.unique().numel() == chosen.count
    assert torch.equal(chosen.values, x[chosen.indices])
    smallest = chosen.values.abs().min()
    # About k reach the threshold; the losers among them are larger than it too.
    assert (left_out(x, chosen) > smallest).sum() + chosen.count < 2000


def test_other_steps_let_other_elements_collide() -> None:
    x = draw("normal", 50_000)
    first, second = (set(select(HashedSlots(0.01), x, at(s)).indices.tolist()) for s in (0, 1))
    assert first != second
    assert first == set(select(HashedSlots(0.01), x, at(0)).indices.tolist())


@pytest.mark.parametrize("slots", [0.0, -1.0, 1000.0])
def test_unreasonable_slots_are_refused(slots: float) -> None:
    with pytest.raises(RecipeError, match=f"slots={slots}"):
        HashedSlots(0.01, slots)
