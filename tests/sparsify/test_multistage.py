"""MSTopk: exactly k, nearly the largest."""

import pytest
import torch

from support.sparsify import DEVICES, DISTRIBUTIONS, at, draw, left_out, select
from thinwire.errors import RecipeError
from thinwire.sparsify import MultiStage, TopK


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", sorted(DISTRIBUTIONS))
@pytest.mark.parametrize("density", [0.001, 0.01, 0.4, 0.9])
@pytest.mark.parametrize("stages", [1, 4, 30])
def test_exactly_k_whatever_the_distribution(
    shape: str, density: float, stages: int, device: str
) -> None:
    x = draw(shape, 50_000, device=device)
    assert select(MultiStage(density, stages), x).count == round(density * 50_000)


@pytest.mark.parametrize("shape", ["normal", "laplace", "uniform", "ramp", "periodic"])
def test_with_enough_stages_it_is_exact_where_magnitudes_differ(shape: str) -> None:
    x = draw(shape, 50_000, dtype=torch.float64)
    chosen = select(MultiStage(0.01, stages=60), x)
    assert torch.equal(chosen.indices, select(TopK(0.01), x).indices)


@pytest.mark.parametrize("stages", [2, 3, 5, 8])
def test_only_the_band_between_the_thresholds_is_filled_by_position(stages: int) -> None:
    """The band is (max - mean)/2^stages wide, and all beyond it is taken."""
    x = draw("laplace", 50_000)
    chosen = select(MultiStage(0.01, stages), x)
    magnitudes = x.abs()
    width = (magnitudes.max() - magnitudes.mean()) / 2**stages
    assert left_out(x, chosen).max() - chosen.values.abs().min() <= width * 1.0001


def test_more_stages_leave_less_behind() -> None:
    x = draw("laplace", 50_000)
    mass = [float(select(MultiStage(0.01, s), x).values.abs().sum()) for s in (2, 5, 20)]
    assert mass[0] < mass[1] < mass[2]


def test_the_fill_moves_from_step_to_step() -> None:
    """All equal in the band: over steps no position is preferred for being low."""
    x = torch.ones(10_000)
    x[:10] = 5.0
    x[10:110] = torch.linspace(6, 9, 100)
    # Mean 1.07, maximum 9: two stages end at (1.07 … 3.05] without the ones; so take 105 of the
    # 110, which leaves a band of equals at 5.
    picks = {
        tuple(select(MultiStage(0.0105, 8), x, at(step)).indices[:5].tolist()) for step in range(30)
    }
    assert len(picks) > 3
    assert all(max(pick) < 10 for pick in picks)


def test_the_exact_fallback_covers_a_density_beyond_the_mean() -> None:
    x = draw("normal", 50_000)
    assert torch.equal(select(MultiStage(0.8), x).indices, select(TopK(0.8), x).indices)


@pytest.mark.parametrize("stages", [0, -1, 2.5, True])
def test_stages_out_of_range_are_refused(stages: int) -> None:
    with pytest.raises(RecipeError, match=f"stages={stages} must be an integer of at least 1"):
        MultiStage(0.01, stages)
