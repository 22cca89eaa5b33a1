"""Where to look next: all implementations say the same, to the bit."""

import math

import pytest
import torch

from support.implementations import Case, bits, cases
from thinwire.kernels.next_guess import guess, learn

everywhere = pytest.mark.parametrize(
    "case", [p for p in cases("next_guess") if "numba" not in p.id]
)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def state(rows: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(rows)
    threshold, gap = torch.rand(2, rows, generator=draw, dtype=torch.float64)
    threshold[rows // 2] = math.inf
    return threshold.to(dtype), (gap / 2).clamp(1e-6, 0.5).to(dtype)


@everywhere
@DTYPES
@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (1, 2), (300, 300), (300, 301)])
def test_guesses(case: Case, dtype: torch.dtype, rows: int, groups: int) -> None:
    threshold, gap = state(rows, dtype)
    found = case.run(guess, threshold, gap, groups)
    assert bits(found[:rows]) == bits(threshold * (1 - gap))
    assert found[rows:].tolist() == [0] * (groups - rows)


@everywhere
@DTYPES
@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (1, 2), (300, 301)])
def test_what_is_learnt(case: Case, dtype: torch.dtype, rows: int, groups: int) -> None:
    threshold, gap = (case.place(each) for each in state(rows, dtype))
    draw = torch.Generator().manual_seed(3)
    passed = torch.randint(0, 4000, (groups,), generator=draw)
    passed[0] = 2**40 + 1
    wanted = 1.5 * torch.randint(1, 1000, (rows,), generator=draw).to(dtype)
    kth = torch.rand(groups, generator=draw, dtype=torch.float64).to(dtype)
    off = (wanted / passed[:rows].clamp(min=1)).clamp(0.25, 4)
    expected = (gap.cpu() * off).clamp(1e-6, 0.5)
    case.run(learn, threshold, gap, kth, passed, wanted)
    assert bits(gap) == bits(expected)
    assert bits(threshold) == bits(kth[:rows])
