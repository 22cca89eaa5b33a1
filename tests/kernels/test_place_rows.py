"""Elements in their places: the same from every implementation."""

import pytest
import torch

from support.implementations import Case, bits, cases, normal
from thinwire.kernels.place_rows import place_rows
from thinwire.types import PADDING

each = pytest.mark.parametrize("case", cases("place_rows"))


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("divisor", [1, 3, 4])
def test_quotients_where_they_belong(case: Case, dtype, divisor: int) -> None:
    indices = torch.randperm(3000, generator=torch.Generator().manual_seed(0))[:1800].view(3, 600)
    indices = indices.sort().values
    indices[1, 570:] = PADDING
    values = normal(3 * 700, dtype).view(3, 700)[:, 50:650]  # rows lie apart
    before = torch.full((3000,), 7.0, dtype=dtype)
    out = case.run(place_rows, indices, values, before.clone(), divisor)
    expected = before.clone()
    there = indices != PADDING
    expected[indices[there]] = values[there] / divisor
    assert bits(out) == bits(expected)


@each
def test_no_elements(case: Case) -> None:
    indices, values = torch.empty(2, 0, dtype=torch.int64), torch.empty(2, 0)
    out = case.run(place_rows, indices, values, torch.ones(5))
    assert bool(out.all())
