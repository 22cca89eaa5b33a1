"""The largest magnitude: the same from every implementation; NaN and Inf are never missed."""

import pytest
import torch
from torch import Tensor

from support.implementations import Case, cases, normal
from thinwire.kernels.max_abs import max_abs
from thinwire.kernels.max_abs.numba import STREAMS, TURN

each = pytest.mark.parametrize("case", cases("max_abs")[:-1])  # there is no Triton for it
TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
ROUND = STREAMS * TURN  # elements until all streams of the CPU's had their turn


@each
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("numel", [0, 1, 777, ROUND, 3 * ROUND + 5])
def test_the_largest_magnitude(case: Case, dtype: torch.dtype, numel: int) -> None:
    x = normal(numel, dtype)
    found = case.run(max_abs, x)
    assert found.dtype == torch.float64 and found.dim() == 0
    assert found.item() == max((abs(v) for v in x.tolist()), default=0.0)


@each
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("value", [torch.nan, -torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [0, TURN, 2 * ROUND - 1, 2 * ROUND, 2 * ROUND + 6])
def test_one_element_that_is_not_finite(
    case: Case, dtype: torch.dtype, value: float, place: int
) -> None:
    x = normal(2 * ROUND + 7, dtype)
    x[place] = value
    found = case.run(max_abs, x)
    torch.testing.assert_close(found.item(), abs(value), rtol=0, atol=0, equal_nan=True)


@each
@pytest.mark.parametrize("value", [-0.0, 2.0**-149, -3.4028234663852886e38])
def test_the_ends_of_the_range(case: Case, value: float) -> None:
    x = torch.tensor([0.0, value, -0.0])
    assert case.run(max_abs, x).item() == abs(value)


@each
def test_nan_counts_more_than_infinity(case: Case) -> None:
    assert case.run(max_abs, torch.tensor([torch.inf, torch.nan, -torch.inf])).isnan()


@each
@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[::2], lambda x: x[:, 1:3]])
def test_any_shape_and_strides(case: Case, view) -> None:
    x: Tensor = view(normal(60).view(6, 10))
    assert case.run(max_abs, x).item() == x.abs().max().item()
