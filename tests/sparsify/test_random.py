"""Random-k: uniform, without replacement, and in step across ranks when it should be."""

import math

import pytest
import torch

from support.sparsify import at, draw, select
from thinwire.sparsify import RandomK

# 99.99 % quantile of χ²(m), by Wilson and Hilferty; seeds are fixed, so this never flakes.
Z = 3.719


def chi_square_limit(freedom: int) -> float:
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + Z * math.sqrt(spread)) ** 3


@pytest.mark.parametrize(("n", "density"), [(5, 0.4), (64, 0.1), (100, 0.3), (1000, 0.01)])
def test_every_element_is_drawn_equally_often(n: int, density: float) -> None:
    steps, k = 1500, round(density * n)
    drawn = torch.zeros(n)
    x = torch.ones(n)
    for step in range(steps):
        drawn[select(RandomK(density), x, at(step)).indices] += 1
    expected = steps * k / n
    # Drawn without replacement a count varies by (1 - k/n) less than Poisson, and the n counts
    # sum to a constant: the scaled statistic is χ² with n - 1 degrees of freedom.
    statistic = float(((drawn - expected) ** 2).sum()) / expected / (1 - k / n) * (n - 1) / n
    assert statistic < chi_square_limit(n - 1)


@pytest.mark.parametrize("n", [8, 30])
def test_pairs_are_drawn_equally_often(n: int) -> None:
    """A permutation that only shifted would pass for single elements, not for pairs."""
    steps, x = 3000, torch.ones(n)
    together = torch.zeros(n, n)
    for step in range(steps):
        first, second = select(RandomK(2 / n), x, at(step)).indices.tolist()
        together[first, second] += 1
    pairs = together[torch.triu(torch.ones(n, n), 1).bool()]
    expected = steps / pairs.numel()
    statistic = float(((pairs - expected) ** 2).sum()) / expected
    assert statistic < chi_square_limit(pairs.numel() - 1)


def test_ranks_agree_when_shared_and_differ_when_not() -> None:
    x = draw("normal", 10_000)

    def indices(shared: bool, rank: int, step: int = 0) -> torch.Tensor:
        return select(RandomK(0.01, shared=shared), x, at(step, rank=rank)).indices

    assert torch.equal(indices(True, 0), indices(True, 1))
    assert not torch.equal(indices(False, 0), indices(False, 1))
    assert not torch.equal(indices(True, 0), indices(True, 0, step=1))


def test_unbiased_values_average_to_the_gradient() -> None:
    x = draw("normal", 50, dtype=torch.float64)
    steps, density = 2000, 0.2
    total = torch.zeros_like(x)
    for step in range(steps):
        select(RandomK(density, unbiased=True), x, at(step)).add_to(total)
    # The variance of one step is x²(1/density - 1): five standard deviations of the mean.
    bound = 5 * x.abs() * ((1 / density - 1) / steps) ** 0.5
    assert bool(((total / steps - x).abs() <= bound).all())


def test_values_are_scaled_only_on_request() -> None:
    x = draw("normal", 100)
    plain, scaled = select(RandomK(0.25), x), select(RandomK(0.25, unbiased=True), x)
    assert torch.equal(plain.indices, scaled.indices)
    assert torch.equal(plain.values, x[plain.indices])
    assert torch.equal(scaled.values, 4 * plain.values)
