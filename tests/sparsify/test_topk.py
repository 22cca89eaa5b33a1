"""Exact top-k."""

import math

import pytest
import torch

from support.sparsify import DEVICES, DISTRIBUTIONS, at, draw, select, spec_of
from thinwire.kernels.grouped_topk import Chosen, Groups
from thinwire.kernels.lazy_sum import LazySum
from thinwire.sparsify import TopK


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("density", [0.0001, 0.001, 0.05, 0.5, 0.999])
@pytest.mark.parametrize("shape", sorted(DISTRIBUTIONS))
@pytest.mark.parametrize("n", [1000, 100_003])
def test_magnitudes_are_those_of_torch_topk(
    n: int, shape: str, density: float, device: str
) -> None:
    x = draw(shape, n, device=device)
    chosen = select(TopK(density), x)
    expected = x.abs().topk(max(1, round(density * n))).values
    assert torch.equal(chosen.values.abs().sort(descending=True).values, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", ["ties", "constant", "zeros", "mostly-zero", "one-hot"])
@pytest.mark.parametrize("n", [1000, 100_003])
def test_among_equals_the_lower_index_is_taken(n: int, shape: str, device: str) -> None:
    x = draw(shape, n, seed=3, device=device)
    k = round(0.05 * n)
    by_magnitude_then_index = x.abs().sort(descending=True, stable=True).indices[:k]
    chosen = select(TopK(0.05), x)
    assert torch.equal(chosen.indices, by_magnitude_then_index.sort().values)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("remembered", [0.0, 1e-3, 1.0, 2.5, 4.0, math.inf])
def test_what_is_remembered_changes_the_time_not_the_result(remembered: float, device: str) -> None:
    """A threshold of any earlier step: far too low, about right, far too high."""
    x = draw("normal", 30_000, device=device)
    topk = TopK(0.01)
    state = topk.init(spec_of(x)) | {"threshold": torch.tensor(remembered, device=device)}
    chosen = topk.select(x, state, at())
    fresh = select(topk, x)
    assert torch.equal(chosen.indices, fresh.indices)
    assert torch.equal(chosen.values, fresh.values)
    assert state["threshold"] == chosen.values.abs().min()


@pytest.mark.parametrize(
    ("n", "density", "k"), [(0, 0.5, 0), (1, 0.001, 1), (7, 0.3, 2), (9, 1, 9)]
)
def test_k_is_rounded_and_at_least_one(n: int, density: float, k: int) -> None:
    assert select(TopK(density), draw("normal", n)).count == k


def test_a_schedule_may_not_leave_the_range_either() -> None:
    with pytest.raises(ValueError, match=r"density=1.5 must be in \(0, 1\]"):
        select(TopK(0.1), draw("normal", 10), at(density=1.5))


@pytest.mark.parametrize("density", [0.001, 0.05])
def test_few_candidates_once_the_residual_is_in_balance(
    density: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that wait pile up just below the threshold; the guess must not let them all in."""
    n, counts = 100_000, []
    chosen_of = LazySum.grouped_topk

    def watched(x: LazySum, groups: Groups, guess: torch.Tensor) -> Chosen:
        chosen = chosen_of(x, groups, guess)
        counts.append(int(chosen.passed) / groups.total)
        return chosen

    monkeypatch.setattr(LazySum, "grouped_topk", watched)
    topk, residual = TopK(density), torch.zeros(n)
    state = topk.init(spec_of(residual))
    for step in range(120):
        residual += draw("laplace", n, seed=step)
        residual[topk.select(residual, state, at(step)).indices] = 0
    settled = sorted(counts[60:])
    assert sum(count < 1 for count in settled) <= 3
    assert settled[-1] <= 4
