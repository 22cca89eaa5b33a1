"""What is added before a selection: what torch adds, and what is refused."""

import math

import pytest
import torch
from torch import Tensor

from support.implementations import Case, bits, cases, normal
from thinwire.errors import RecipeError
from thinwire.kernels.addend import Addend
from thinwire.kernels.block_norms import block_norms
from thinwire.kernels.compact import compact
from thinwire.kernels.grouped_topk import Groups, grouped_topk
from thinwire.kernels.hash_select import hash_select

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


def flagged(case: Case, residual: Tensor, addend: Addend, operation: str) -> object:
    threshold = torch.tensor(1.0, dtype=residual.dtype)
    groups = Groups(((0, 400, 0), (400, residual.numel(), 1)), (7, residual.numel() - 400))
    rest: dict[str, tuple[object, ...]] = {
        "compact": (compact, residual, threshold, 10, addend),
        "hash": (hash_select, residual, threshold, 64, 5, addend),
        "norms": (block_norms, residual, 16, addend),
        "grouped": (grouped_topk, residual, groups, torch.ones(2, dtype=residual.dtype), addend),
        "torch": (lambda: addend.add_to(residual),),
    }
    return case.run(*rest[operation])  # type: ignore[arg-type]


@pytest.mark.parametrize("case", cases("compact"))
@pytest.mark.parametrize("operation", ["compact", "hash", "norms", "grouped", "torch"])
@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_what_is_not_finite_is_added_as_zero_and_told(
    case: Case, operation: str, momentum: bool, dtype: torch.dtype
) -> None:
    numel, bad = 1001, case.place(torch.zeros((), dtype=torch.int32))
    grad = normal(numel, seed=1).to(dtype)
    clean = grad.clone()
    velocity = case.place(normal(numel, seed=2)) if momentum else None
    for step, strange in enumerate([None, math.nan, -math.inf, math.inf, None]):
        if strange is not None:
            grad[5 + step * 200], clean[5 + step * 200] = strange, 0
        residual, plain = normal(numel), normal(numel)
        before = None if velocity is None else velocity.cpu().clone()
        Addend(clean, before, 0.9).add_to(plain)
        placed = case.place(residual)
        flagged(case, placed, Addend(case.place(grad), velocity, 0.9, bad=bad), operation)
        assert bits(placed) == bits(plain)
        assert velocity is None or bits(velocity) == bits(before)
        assert int(bad) == (step > 0), "set, and never cleared"


def test_a_sample_leaves_the_flag_alone() -> None:
    grad, bad = torch.tensor([1.0, math.inf, 3.0]), torch.zeros((), dtype=torch.int32)
    sample = Addend(grad, bad=bad).sample(torch.ones(3), slice(None))
    assert sample.tolist() == [2, 1, 4]
    assert int(bad) == 0


@pytest.mark.parametrize("bad", [torch.zeros(1, dtype=torch.int32), torch.zeros(())])
def test_a_flag_that_cannot_be_set_is_refused(bad: Tensor) -> None:
    with pytest.raises(RecipeError, match="a flag of"):
        compact(torch.zeros(4), torch.tensor(1.0), 4, Addend(torch.zeros(4), bad=bad))
