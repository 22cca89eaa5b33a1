"""Threshold compaction: one contract, the same bits from every implementation."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from support.implementations import Case, awkward_cases, bits, cases, normal
from thinwire.errors import RecipeError
from thinwire.kernels.addend import Addend
from thinwire.kernels.compact import Found, compact

everywhere = pytest.mark.parametrize("case", cases("compact"))
awkward_everywhere = pytest.mark.parametrize(("case", "x"), awkward_cases("compact"))
DTYPES = [  # of an accumulator and of the gradient that is added to it
    (torch.float32, torch.float32),
    (torch.float32, torch.float16),
    (torch.float32, torch.bfloat16),
    (torch.float32, torch.float64),
    (torch.float64, torch.float64),
    (torch.float64, torch.bfloat16),
]


def accumulate(
    residual: Tensor, grad: Tensor, threshold: Tensor, capacity: int, clear: bool = False
) -> Found:
    return compact(residual, threshold, capacity, Addend(grad, clear=clear))


def accumulate_momentum(
    velocity: Tensor,
    residual: Tensor,
    grad: Tensor,
    factor: float,
    threshold: Tensor,
    capacity: int,
    clear: bool = False,
) -> Found:
    return compact(residual, threshold, capacity, Addend(grad, velocity, factor, clear))


def passing(x: Tensor, threshold: float) -> list[int]:
    """The contract, one element at a time."""
    limit = float(torch.tensor(threshold, dtype=x.dtype))
    return [i for i, v in enumerate(x.tolist()) if v != 0 and abs(v) >= limit]


def lists(found: Found, x: Tensor, expected: list[int]) -> bool:
    """Whether `found` says that the `expected` elements of `x` passed, as far as it has room."""
    indices, values = found.trim()
    assert indices.dtype == found.count.dtype == torch.int64
    assert found.count.dim() == 0 and found.count.device == found.indices.device
    listed = expected[: found.capacity]
    assert values.dtype == x.dtype
    assert bits(values) == bits(x.cpu()[listed])
    return int(found.count) == len(expected) and indices.tolist() == listed


@awkward_everywhere
def test_every_element_that_reaches_the_threshold(case: Case, x: Tensor) -> None:
    median, most = float(x.abs().median()), float(x.abs().max())
    for threshold in case.some([0.0, -1.0, 1e-45, median, most, math.inf, math.nan]):
        found = case.run(compact, x, torch.tensor(threshold, dtype=x.dtype), x.numel())
        assert lists(found, x, passing(x, threshold))


@everywhere
@pytest.mark.parametrize("numel", [0, 1, 63, 64, 65, 4096, 10007])
def test_any_number_of_elements(case: Case, numel: int) -> None:
    x = normal(numel, seed=numel)
    for threshold in (0.1, 3.0):
        found = case.run(compact, x, torch.tensor(threshold), numel)
        assert lists(found, x, passing(x, threshold))


@everywhere
@pytest.mark.parametrize("capacity", [0, 1, 63, 64, 100, 1000])
def test_beyond_the_capacity_they_are_counted_but_not_listed(case: Case, capacity: int) -> None:
    x = normal(1000)
    found = case.run(compact, x, torch.tensor(0.5), capacity)
    assert found.capacity == capacity
    assert lists(found, x, passing(x, 0.5))


@everywhere
def test_nan_does_not_pass(case: Case) -> None:
    x = normal(200)
    x[::3] = math.nan
    for threshold in (0.0, 1.0, math.inf, math.nan):
        found = case.run(compact, x, torch.tensor(threshold), 200)
        assert lists(found, x, passing(x, threshold))


@everywhere
def test_the_threshold_is_compared_in_the_precision_of_the_elements(case: Case) -> None:
    x = torch.tensor([0.1, 0.2, 0.3])
    assert float(x[1]) > 0.2  # as float64, so 0.2 in float64 is not what float32 holds
    found = case.run(compact, -x, torch.tensor(0.2, dtype=torch.float64), 3)
    assert found.trim()[0].tolist() == [1, 2]
    just_above = torch.tensor(float(x[1]) + 1e-12, dtype=torch.float64)
    assert case.run(compact, x, just_above, 3).trim()[0].tolist() == [1, 2]


@everywhere
@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize(("dtype", "grad_dtype"), DTYPES)
def test_fused_is_unfused(
    case: Case, dtype: torch.dtype, grad_dtype: torch.dtype, clear: bool
) -> None:
    grad = normal(5003, seed=1).to(torch.float64).div(3).to(grad_dtype)
    grad[:5] = torch.tensor([0.0, -0.0, 6e-8, -6e-8, 1e-4])  # two are denormal in float16
    expected = normal(5003, dtype).add_(grad)
    residual, spent = case.place(normal(5003, dtype)), case.place(grad.clone())
    found = case.run(accumulate, residual, spent, torch.tensor(1.5, dtype=dtype), 5003, clear)
    assert bits(residual) == bits(expected)
    assert bits(spent) == bits(torch.zeros_like(grad) if clear else grad)
    assert lists(found, expected, passing(expected, 1.5))


@everywhere
@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize(("dtype", "grad_dtype"), DTYPES)
def test_momentum_is_rounded_after_each_operation(
    case: Case, dtype: torch.dtype, grad_dtype: torch.dtype, clear: bool
) -> None:
    grad = normal(3001, seed=2).to(grad_dtype)
    expected_velocity = normal(3001, dtype, seed=3).mul_(0.9).add_(grad)
    expected = normal(3001, dtype, seed=4).add_(expected_velocity)
    velocity, residual = (case.place(normal(3001, dtype, seed=seed)) for seed in (3, 4))
    limit, spent = torch.tensor(2.0, dtype=dtype), case.place(grad.clone())
    found = case.run(accumulate_momentum, velocity, residual, spent, 0.9, limit, 100, clear)
    assert bits(spent) == bits(torch.zeros_like(grad) if clear else grad)
    assert bits(velocity) == bits(expected_velocity)
    assert bits(residual) == bits(expected)
    assert lists(found, expected, passing(expected, 2.0))


@everywhere
@pytest.mark.parametrize("grad_dtype", [torch.float16, torch.bfloat16])
def test_every_number_of_sixteen_bits_is_added_as_it_is(
    case: Case, grad_dtype: torch.dtype
) -> None:
    grad = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(grad_dtype)
    grad = grad[~grad.isnan()]
    if case.interpreted:  # its conversion of denormal bfloat16 is wrong (Triton 3.6 to 3.9)
        grad = grad[(grad == 0) | (grad.float().abs() >= 2.0**-126)]
    residual = case.place(torch.zeros(grad.numel()))
    found = case.run(accumulate, residual, grad, torch.tensor(math.inf), 2)
    assert bits(residual) == bits(torch.zeros(grad.numel()).add_(grad))
    assert found.trim()[1].tolist() == [-math.inf, math.inf]


def test_several_callers_at_once() -> None:
    """Threads that call, each with threads that help it: none gets another's results."""
    inputs = [normal(2000 + 100 * i, seed=i) for i in range(8)]
    case = Case("numba", threads=2)
    with case.chosen(), ThreadPoolExecutor(4) as callers:
        found = callers.map(lambda x: compact(x, torch.tensor(0.5), 3000), inputs * 4)
        for result, x in zip(found, inputs * 4, strict=True):
            assert lists(result, x, passing(x, 0.5))


@pytest.mark.parametrize(
    ("x", "threshold", "capacity", "complaint"),
    [
        (torch.zeros(4, dtype=torch.float16), torch.tensor(1.0), 4, "float32 or float64"),
        (torch.zeros(4, dtype=torch.int64), torch.tensor(1.0), 4, "float32 or float64"),
        (torch.zeros(2, 2), torch.tensor(1.0), 4, "flat"),
        (torch.zeros(8)[::2], torch.tensor(1.0), 4, "contiguous"),
        (torch.zeros(4), torch.ones(1), 4, "0-D"),
        (torch.zeros(4), torch.tensor(1.0), -1, "capacity=-1"),
    ],
)
def test_what_cannot_be_read_is_refused(
    x: Tensor, threshold: Tensor, capacity: int, complaint: str
) -> None:
    with pytest.raises(RecipeError, match=complaint):
        compact(x, threshold, capacity)
