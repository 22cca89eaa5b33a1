"""Four bins and their means: all implementations bit for bit the same, and no better means."""

import math

import pytest
import torch
from torch import Tensor

from support.implementations import Case, bits, cases, normal
from thinwire.kernels.centroids import from_centroids, groups_in, reference, to_centroids

everywhere = pytest.mark.parametrize("case", cases("centroids"))
TINY = {torch.float32: 2.0**-149, torch.float64: 2.0**-1074}


def some(dtype: torch.dtype) -> dict[str, Tensor]:
    return {
        "normal": normal(300, dtype).view(3, 100),
        "one value": normal(1, dtype)[None],
        "a long row": normal(2100, dtype)[None],
        "nothing": torch.empty(2, 0, dtype=dtype),
        "zeros": torch.zeros(2, 33, dtype=dtype),
        "negative zeros": -torch.zeros(1, 5, dtype=dtype),
        "equal": torch.full((1, 70), -0.1, dtype=dtype),
        "one sign": normal(80, dtype).abs()[None] + 1,
        "large": normal(64, dtype)[None].sign() * torch.finfo(dtype).max,
        "small": (torch.arange(-20, 20).to(dtype) * TINY[dtype])[None],
        "not finite": torch.tensor([[1.0, math.nan], [math.inf, 2.0], [3.0, 4.0]], dtype=dtype),
    }


@everywhere
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("group", [1, 7, 64, 1024, 5000])
def test_all_are_the_reference(case: Case, dtype: torch.dtype, group: int) -> None:
    for name, values in list(some(dtype).items())[:: 2 if case.interpreted else 1]:
        centroids, codes = case.run(to_centroids, values, group)
        expected, their_codes = reference.to_centroids(values, group)
        assert centroids.shape == (len(values), groups_in(values.shape[1], group), 4), name
        assert codes.tolist() == their_codes.tolist(), name
        assert bits(centroids.view(-1)) == bits(expected.view(-1)), name
        out = case.run(from_centroids, centroids, codes, group)
        assert out.shape == values.shape
        its = reference.from_centroids(expected, their_codes, group)
        assert bits(out.view(-1)) == bits(its.view(-1))


def test_by_hand() -> None:
    values = torch.tensor([[1.0, 3.0, -1.0, -5.0, 2.0, 0.0]])  # σ² = 40/6
    centroids, codes = reference.to_centroids(values, 6)
    assert codes.tolist() == [[2, 3, 1, 0, 2, 2]]
    assert centroids.tolist() == [[[-5.0, -1.0, 1.0, 3.0]]]
    assert reference.from_centroids(centroids, codes, 6).tolist() == [
        [1.0, 3.0, -1.0, -5.0, 1.0, 1.0]
    ]


@pytest.mark.parametrize("content", ["normal", "heavy", "tail"])
def test_it_is_a_contraction_and_no_other_mean_is_closer(content: str) -> None:
    x = normal(400_000, torch.float64)
    if content == "heavy":
        x = x**7
    elif content == "tail":  # what a selection of 1.6 % leaves of normal values
        x = x[x.abs() > 2.42]
    x = x[: len(x) // 500 * 500]
    out = reference.from_centroids(*reference.to_centroids(x[None], 500), 500)[0]
    error = (out - x).square().view(-1, 500).sum(1)
    assert (error < x.square().view(-1, 500).sum(1)).all()
    share = float(error.sum() / x.square().sum())
    assert share < {"normal": 0.1195, "heavy": 0.5, "tail": 0.007}[content]  # Max, 1960: 0.1175
    for moved in (-0.01, 0.01):
        centroids, codes = reference.to_centroids(x[None], 500)
        other = reference.from_centroids(centroids + moved, codes, 500)[0]
        assert (other - x).square().sum() > error.sum()
