"""What is still to be added: in torch's order of rounding, and refused where it does not fit."""

import pytest
import torch
from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels.addend import Addend, check

N = 6


def test_a_gradient_is_added_in_place() -> None:
    x, grad = torch.randn(N), torch.randn(N)
    expected = x + grad
    Addend(grad).add_to(x)
    assert torch.equal(x, expected)


def test_a_velocity_is_carried_and_added() -> None:
    x, grad, velocity = torch.randn(N), torch.randn(N), torch.randn(N)
    moved = velocity * 0.9 + grad
    expected = x + moved
    Addend(grad, velocity, 0.9).add_to(x)
    assert torch.equal(velocity, moved)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("clear", [False, True])
def test_the_gradient_is_cleared_only_if_asked(clear: bool) -> None:
    grad = torch.ones(N)
    Addend(grad, clear=clear).add_to(torch.zeros(N))
    assert bool((grad == (0 if clear else 1)).all())


def test_a_sample_changes_nothing() -> None:
    x, grad, velocity = torch.randn(N), torch.randn(N), torch.randn(N)
    before = [t.clone() for t in (x, grad, velocity)]
    addend = Addend(grad, velocity, 0.5, clear=True)
    sample = addend.sample(x, slice(0, N, 2))
    assert all(torch.equal(a, b) for a, b in zip((x, grad, velocity), before, strict=True))
    addend.add_to(x)
    assert torch.equal(sample, x[::2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_gradients_of_any_floating_dtype_pass(dtype: torch.dtype) -> None:
    check(torch.zeros(N), torch.tensor(0.5), Addend(torch.zeros(N, dtype=dtype)))


@pytest.mark.parametrize(
    ("x", "addend", "says"),
    [
        (torch.zeros(2, 3), None, "pass them flat"),
        (torch.zeros(12)[::2], None, "pass them flat"),
        (torch.zeros(N).half(), None, "float32 or float64"),
        (torch.zeros(N), Addend(torch.zeros(N + 1)), "cannot be added"),
        (torch.zeros(N), Addend(torch.zeros(2 * N)[::2]), "cannot be added"),
        (torch.zeros(N), Addend(torch.zeros(N).long()), "cannot be added"),
        (torch.zeros(N), Addend(torch.zeros(N), torch.zeros(N).double()), "velocity is"),
    ],
)
def test_what_does_not_fit_is_refused(x: Tensor, addend: Addend | None, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        check(x, addend=addend)


def test_a_threshold_is_one_number() -> None:
    with pytest.raises(RecipeError, match="0-D tensor"):
        check(torch.zeros(N), torch.zeros(1))
