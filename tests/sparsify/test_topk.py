"""Exact top-k, on both of its routes."""

import pytest
import torch

from thinwire.sparsify import TopK
from thinwire.sparsify import _common as common

from .helpers import DEVICES, DISTRIBUTIONS, at, draw, select


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


def test_a_sample_that_misleads_changes_the_time_not_the_result() -> None:
    """The sampled elements are the smallest of all, or the largest of all."""
    n = 50_000
    for misleading in (1e-6, 1e6):
        x = draw("normal", n)
        x[:: common.odd_stride(n, common._LEAST_SAMPLE)] *= misleading
        chosen = select(TopK(0.01), x)
        expected = x.abs().topk(500).values
        assert torch.equal(chosen.values.abs().sort(descending=True).values, expected)


def test_large_tensors_are_narrowed_before_the_exact_selection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []
    exact = common._largest_directly

    def watched(x: torch.Tensor, k: int) -> torch.Tensor:
        sizes.append(x.numel())
        return exact(x, k)

    monkeypatch.setattr(common, "_largest_directly", watched)
    select(TopK(0.001), draw("laplace", 2_000_000))
    assert sizes and sizes[0] < 4 * 2000, "two thousand out of two million"


@pytest.mark.parametrize("shape", ["constant", "zeros", "mostly-zero", "ties"])
def test_ties_do_not_cost_a_selection_over_everything(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(common, "_largest_directly")
    assert select(TopK(0.01), draw(shape, 100_000)).count == 1000


def test_a_chunk_boundary_is_no_boundary() -> None:
    n = common.CHUNK + 1000
    x = torch.zeros(n)
    marked = torch.tensor([0, common.CHUNK - 1, common.CHUNK, n - 1])
    x[marked] = torch.tensor([1.0, -2.0, 3.0, -4.0])
    assert torch.equal(select(TopK(4 / n), x).indices, marked)


@pytest.mark.parametrize(
    ("n", "density", "k"), [(0, 0.5, 0), (1, 0.001, 1), (7, 0.3, 2), (9, 1, 9)]
)
def test_k_is_rounded_and_at_least_one(n: int, density: float, k: int) -> None:
    assert select(TopK(density), draw("normal", n)).count == k


def test_a_schedule_may_not_leave_the_range_either() -> None:
    with pytest.raises(ValueError, match=r"density=1.5 must be in \(0, 1\]"):
        select(TopK(0.1), draw("normal", 10), at(density=1.5))
