"""Elements in their places: the same from every implementation."""

import pytest
import torch

from support.implementations import Case, bits, cases, normal
from thinwire.kernels.place_rows import place_rows
from thinwire.types import PADDING

each = pytest.mark.parametrize("case", cases("place_rows"))


def lists(dtype=torch.float32):
    """Three of them, the second with padding, whose values lie apart."""
    indices = torch.randperm(3000, generator=torch.Generator().manual_seed(0))[:1800].view(3, 600)
    indices = indices.sort().values
    indices[1, 570:] = PADDING
    return indices, normal(3 * 700, dtype).view(3, 700)[:, 50:650]


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("divisor", [1, 3, 4])
def test_quotients_where_they_belong(case: Case, dtype, divisor: int) -> None:
    indices, values = lists(dtype)
    out = torch.full((3000,), 7.0, dtype=dtype, device=case.device)
    assert case.run(place_rows, indices, values, out, divisor).tolist() == 0
    expected, there = torch.full((3000,), 7.0, dtype=dtype), indices != PADDING
    expected[indices[there]] = values[there] / divisor
    assert bits(out) == bits(expected)


@each
@pytest.mark.parametrize("row", [0, 2])
def test_a_mark_is_found(case: Case, row: int) -> None:
    indices, values = lists()
    values[1, 3] = torch.nan  # none: it is not the first
    assert case.run(place_rows, indices, values, torch.zeros(3000)).tolist() == 0
    values[row, 0] = torch.nan
    marked = case.run(place_rows, indices, values, torch.zeros(3000))
    assert (marked.tolist(), marked.dtype) == (1, torch.int64)
