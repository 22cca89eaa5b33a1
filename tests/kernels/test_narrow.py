"""Numbers in 16 bits: all implementations round alike, and bits are those that torch makes."""

import pytest
import torch
from torch import Tensor

from support.implementations import Case, cases
from thinwire.kernels.narrow import narrow

everywhere = pytest.mark.parametrize("case", [p for p in cases("narrow") if "numba" not in p.id])
HALVES = pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def awkward(half: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Ties both ways, what is beyond the range, denormals of both formats, and any bits."""
    draw = torch.Generator().manual_seed(5)
    words = torch.randint(-(2**31), 2**31, (3000,), generator=draw).to(torch.int32)
    some = words.view(torch.float32)
    form = torch.finfo(half)
    ties = 1 + form.eps * torch.arange(-6, 7) / 4
    far = torch.tensor([form.max, form.max * (1 + 2.0**-12), 3e38, torch.inf, 0.0])
    tiny = form.tiny * torch.arange(1, 40) / 32
    every = torch.cat((some[some.isfinite()], ties, ties, far, tiny)).to(dtype)
    return torch.cat((every, -every))


@everywhere
@HALVES
@DTYPES
def test_it_rounds_as_torch_does(case: Case, half: torch.dtype, dtype: torch.dtype) -> None:
    values = awkward(half, dtype)[None]
    out = torch.empty(values.shape, dtype=half, device=case.device)
    case.run(narrow, values, out)
    largest = torch.finfo(half).max
    expected = torch.where(values.isinf(), values, values.clamp(-largest, largest)).to(half)
    assert torch.equal(out.cpu().view(torch.int16), expected.view(torch.int16))


@everywhere
@HALVES
def test_nan_stays_nan(case: Case, half: torch.dtype) -> None:
    values = torch.tensor([[1.0, torch.nan, -torch.nan, 2.0]])
    out = torch.empty(1, 4, dtype=half, device=case.device)
    case.run(narrow, values, out)
    assert out.isnan().tolist() == [[False, True, True, False]]


@everywhere
@pytest.mark.parametrize("shape", [(3, 1030), (2, 1), (2, 0), (0, 5)])
def test_rows_lie_apart(case: Case, shape: tuple[int, int]) -> None:
    """Nothing beside them is touched."""
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    room = torch.full((shape[0], shape[1] + 9), 7.0).to(torch.bfloat16).to(case.device)
    case.run(narrow, torch.cat((values, values), 1)[:, : shape[1]], room[:, 4:-5])
    assert torch.equal(room[:, 4:-5].cpu(), values.to(torch.bfloat16))
    assert (room[:, :4] == 7).all() and (room[:, -5:] == 7).all()
