"""DGC's sampled threshold."""

import pytest
import torch

from support.sparsify import DISTRIBUTIONS, at, draw, left_out, select
from thinwire.errors import RecipeError
from thinwire.kernels.lazy_sum import LazySum
from thinwire.sparsify import SampledThreshold, TopK
from thinwire.sparsify import _common as common
from thinwire.sparsify import sampled as module
from thinwire.types import Sparse


@pytest.mark.parametrize("shape", sorted(DISTRIBUTIONS))
@pytest.mark.parametrize("density", [0.001, 0.01, 0.2])
def test_the_count_stays_within_its_bounds_over_steps(shape: str, density: float) -> None:
    n = 50_000
    x = draw(shape, n)
    k = round(density * n)
    for step in range(8):
        count = select(SampledThreshold(density), x, at(step)).count
        assert 0.8 * k <= count <= 1.3 * k


def test_too_many_keeps_the_exact_largest_not_the_first() -> None:
    """Large elements at the end, where truncation by index would drop them."""
    x = draw("normal", 40_000)
    x[-400:] += 100
    for step in range(5):
        chosen = select(SampledThreshold(0.01, low=1.0, high=1.0), x, at(step))
        assert torch.equal(chosen.indices, torch.arange(39_600, 40_000))


def test_a_light_sample_needs_few_passes_even_in_a_heavy_tail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes = []

    def counted(x: LazySum, threshold: torch.Tensor, expected: int) -> Sparse:
        passes.append(x.numel)
        return common.reaching(x, threshold, expected)

    def refused(x: torch.Tensor, k: int) -> None:
        pytest.fail("fell back to exact selection")

    monkeypatch.setattr(module, "reaching", counted)
    monkeypatch.setattr(module, "take_largest", refused)
    for step in range(20):
        select(SampledThreshold(0.01), draw("cauchy", 100_000, step), at(step))
    assert 20 <= len(passes) <= 30


def test_without_adjustments_it_still_keeps_its_bounds() -> None:
    """Rank one of a sample without the tail: far too few pass, and the exact route follows."""
    x = draw("peaked", 50_000)
    for step in range(20):
        count = select(SampledThreshold(0.001, max_adjustments=0, low=1, high=1), x, at(step)).count
        assert count == 50


def test_the_sample_moves_from_step_to_step_and_from_rank_to_rank() -> None:
    x = draw("normal", 100_000)
    counts = {
        select(SampledThreshold(0.01), x, at(step, rank=r)).count
        for step in range(4)
        for r in (0, 1)
    }
    assert len(counts) > 4, "the same sample would suggest the same threshold"


def test_a_sample_of_everything_is_exact() -> None:
    x = draw("normal", 5000)
    assert torch.equal(
        select(SampledThreshold(0.02, sample=1.0), x).indices, select(TopK(0.02), x).indices
    )


def test_what_is_left_is_smaller_when_columns_differ() -> None:
    """One column of each row is fifty times larger: a stride along the columns is misled."""
    x = draw("periodic", 256_000)
    chosen = select(SampledThreshold(0.005), x)
    assert chosen.values.abs().min() >= left_out(x, chosen).max()
    assert 0.8 * 1280 <= chosen.count <= 1.3 * 1280


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sample": 0.0}, r"sample=0.0 must be in \(0, 1\]"),
        ({"sample": 1.5}, r"sample=1.5 must be in \(0, 1\]"),
        ({"low": 1.1}, r"low=1.1 must be in \[0, 1\]"),
        ({"high": 0.9}, r"high=0.9 must be at least 1"),
        ({"max_adjustments": -1}, "max_adjustments=-1 must be an integer of at least 0"),
        ({"max_adjustments": 1.5}, "max_adjustments=1.5 must be an integer of at least 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        SampledThreshold(0.01, **settings)  # type: ignore[arg-type]
