"""What is added before a selection: what torch adds, and what is refused."""

import pytest
import torch
from torch import Tensor

from support.implementations import bits, normal
from thinwire.errors import RecipeError
from thinwire.kernels.addend import Addend
from thinwire.kernels.compact import compact

N = 100


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_it_is_added_in_place(momentum: bool, clear: bool, dtype: torch.dtype) -> None:
    x, grad = normal(N, seed=1), normal(N, dtype, seed=2)
    velocity = normal(N, seed=3) if momentum else None
    step = normal(N, seed=3).mul_(0.9).add_(grad) if momentum else grad
    expected = normal(N, seed=1).add_(step)
    addend = Addend(grad, velocity, 0.9, clear)
    sample = addend.sample(x, slice(3, None, 7))
    assert sample.dtype == x.dtype
    assert bits(sample) == bits(expected[3::7])
    assert bits(x) == bits(normal(N, seed=1)), "a sample changes nothing"
    addend.add_to(x)
    assert bits(x) == bits(expected)
    assert velocity is None or bits(velocity) == bits(step)
    assert bits(grad) == bits(torch.zeros(N, dtype=dtype) if clear else normal(N, dtype, seed=2))


@pytest.mark.parametrize(
    "grad", [torch.zeros(3), torch.zeros(8)[::2], torch.zeros(4, dtype=torch.int32)]
)
def test_what_cannot_be_added_is_refused(grad: Tensor) -> None:
    x, threshold = torch.zeros(4), torch.tensor(1.0)
    for addend in (Addend(grad), Addend(grad, torch.zeros(4), 0.9)):
        with pytest.raises(RecipeError, match="cannot be added to 4 elements"):
            compact(x, threshold, 4, addend)
    with pytest.raises(RecipeError, match=r"velocity is torch.float64"):
        compact(x, threshold, 4, Addend(torch.zeros(4), torch.zeros(4, dtype=torch.float64), 0.9))
