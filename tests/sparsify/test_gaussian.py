"""Gaussiank: the normal quantile, scaled until the count fits."""

import pytest
import torch

from support.sparsify import DISTRIBUTIONS, draw, select
from thinwire.errors import RecipeError
from thinwire.kernels.lazy_sum import LazySum
from thinwire.sparsify import GaussianK
from thinwire.sparsify import _common as common
from thinwire.sparsify import gaussian as module
from thinwire.types import Sparse


@pytest.mark.parametrize("shape", sorted(DISTRIBUTIONS))
@pytest.mark.parametrize("density", [0.001, 0.01, 0.2, 0.9])
def test_the_count_stays_within_its_bounds(shape: str, density: float) -> None:
    n = 50_000
    k = round(density * n)
    assert 0.75 * k <= select(GaussianK(density), draw(shape, n)).count <= 1.25 * k


def test_normal_gradients_need_no_scaling() -> None:
    """The count is what the quantile gives: near k, and not forced to it."""
    x = draw("normal", 400_000)
    chosen = select(GaussianK(0.01, max_adjustments=0), x)
    threshold = 2.5758 * x.std()  # the two-sided 1 % quantile
    assert chosen.count == pytest.approx(int((x.abs() >= threshold).sum()), rel=0.01)
    assert chosen.count != 4000


@pytest.mark.parametrize("shape", ["normal", "uniform", "laplace", "shifted", "periodic"])
@pytest.mark.parametrize("density", [0.001, 0.01])
def test_ordinary_distributions_need_few_passes_over_everything(
    shape: str, density: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 200_000
    passes = []

    def counted(x: LazySum, threshold: float, expected: int) -> Sparse:
        passes.append(x.numel)
        return common.reaching(x, threshold, expected)

    def refused(x: torch.Tensor, k: int) -> None:
        pytest.fail("fell back to exact selection over everything")

    monkeypatch.setattr(module, "reaching", counted)
    monkeypatch.setattr(module, "take_largest", refused)
    select(GaussianK(density), draw(shape, n))
    assert passes.count(n) <= 4
    assert len(passes) <= 11, "one, and ten adjustments"


def test_peaked_gradients_get_a_lower_threshold_than_the_quantile() -> None:
    """Ok-Topk, figure 4: the quantile of peaked gradients selects far fewer than k."""
    x = draw("peaked", 100_000)
    by_quantile = (x.abs() >= 1.6449 * x.std() + x.mean().abs()).sum()  # 10 %, two-sided
    assert by_quantile < 0.2 * 10_000
    assert select(GaussianK(0.1), x).count >= 0.75 * 10_000


def test_without_adjustments_what_does_not_fit_is_exact() -> None:
    assert select(GaussianK(0.1, max_adjustments=0), draw("peaked", 10_000)).count == 1000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"low": 2.0}, r"low=2.0 must be in \[0, 1\]"),
        ({"high": 0.0}, r"high=0.0 must be at least 1"),
        ({"max_adjustments": -2}, "max_adjustments=-2 must be an integer of at least 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        GaussianK(0.01, **settings)  # type: ignore[arg-type]
