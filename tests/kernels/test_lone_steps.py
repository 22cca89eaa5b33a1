"""Adam's steps of a rank alone: alike from every implementation, and as long as they should be.

But for the last bit: torch's square root on a CPU is not always the nearest.
"""

import pytest
import torch

from support.implementations import Case, cases, normal
from thinwire.kernels.lone_steps import lone_steps, reference

each = pytest.mark.parametrize("case", cases("lone_steps"))
SIZES = (5000, 0, 1, 4096)


def adams(device: torch.device) -> tuple[list[torch.Tensor], ...]:
    """Parameters, means and squares, of which some are noise, some signal, and some neither."""
    parameters = [normal(size, seed=size).to(device) for size in SIZES]
    means = [normal(size, seed=size + 1).to(device) for size in SIZES]
    factors = [normal(size, seed=size + 2).abs().to(device) for size in SIZES]
    squares = [mean.square() * 3 * f for mean, f in zip(means, factors, strict=True)]
    means[0][:7], squares[0][:9] = 0.0, 0.0
    return parameters, means, squares


@each
def test_all_compute_the_same(case: Case) -> None:
    given, expected = adams(case.device), adams(case.device)
    scales = torch.tensor([2.5, 1.25], device=case.device)
    reference.lone_steps(*expected, scales, 0.01, 1e-8, 4)
    before = [p.clone() for p in given[0]]
    with case.chosen():
        lone_steps(*given, scales, 0.01, 1e-8, 4)
    for ours, theirs in zip(given, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=3e-7, atol=1e-8)
    assert not torch.equal(given[0][0], before[0])


@each
def test_other_dtypes_and_strides(case: Case) -> None:
    p, m, v = (normal(64, seed=s).to(case.device).view(8, 8).t() for s in range(3))
    expected, scales = p.clone(), torch.ones(2, device=case.device)
    reference.lone_steps([expected], [m], [v.abs()], scales, 0.1, 1e-8, 2)
    with case.chosen():
        lone_steps([p], [m], [v.abs()], scales, 0.1, 1e-8, 2)
        halves = [t.bfloat16() for t in (p, m, v.abs())]
        lone_steps([halves[0]], [halves[1]], [halves[2]], scales, 0.1, 1e-8, 2)
    torch.testing.assert_close(p, expected, rtol=3e-7, atol=1e-8)
    assert halves[0].isfinite().all()


def test_noise_gets_longer_steps_and_a_signal_the_same() -> None:
    """v = σ² alone: √P times as long. v = g²: as it was; and never shorter."""
    p, scales = torch.zeros(3), torch.ones(2)
    m, v = torch.tensor([1e-3, 1.0, 1.0]), torch.tensor([1.0, 1.0, 0.5])
    lone_steps([p], [m], [v], scales, 1.0, 0.0, 4)
    adam = -m / v.sqrt()
    assert (p + adam)[0] / adam[0] == pytest.approx(2.0, rel=1e-5)
    assert p[1] == 0
    assert p[2] == pytest.approx(2**0.5 - 1, rel=1e-5)  # v < m² cannot be noise: m² is taken
