"""The k largest magnitudes: exactly those, whatever the guess; the same bits from everywhere."""

import math

import pytest
import torch
from torch import Tensor

from support.implementations import Case, awkward_cases, bits, cases, normal
from thinwire.errors import RecipeError
from thinwire.kernels.addend import Addend
from thinwire.kernels.compact import compact
from thinwire.kernels.exact_topk import largest, largest_of

everywhere = pytest.mark.parametrize("case", cases("exact_topk"))
awkward_everywhere = pytest.mark.parametrize(("case", "x"), awkward_cases("exact_topk"))
BAD_GUESSES = [-1.0, 1e-45, 0.0, 1e30, math.inf]


def expected(x: Tensor, k: int) -> list[int]:
    """The contract: the larger magnitude first, then the lower index."""
    magnitudes = x.abs().tolist()
    return sorted(sorted(range(x.numel()), key=lambda i: (-magnitudes[i], i))[:k])


def check(triple: tuple[Tensor, Tensor, Tensor], x: Tensor, k: int) -> None:
    indices, values, threshold = triple
    assert indices.dtype == torch.int64 and values.dtype == threshold.dtype == x.dtype
    assert indices.tolist() == expected(x, k)
    assert bits(values) == bits(x[indices.cpu()])
    largest_magnitudes = x.abs().topk(k).values
    assert threshold.dim() == 0
    assert bits(threshold) == bits(largest_magnitudes[-1])
    assert values.cpu().abs().sort(descending=True).values.equal(largest_magnitudes)


def ks(x: Tensor) -> list[int]:
    return [x.numel() // 3 or 1, 1, x.numel() - 1]


@awkward_everywhere
def test_exactly_the_largest(case: Case, x: Tensor) -> None:
    for k in case.some(ks(x)):
        check(case.run(largest, x, k), x, k)


@awkward_everywhere
def test_the_guess_decides_nothing(case: Case, x: Tensor) -> None:
    k = ks(x)[0]
    kth = float(x.abs().topk(k).values[-1])
    for guess in case.some([kth * 0.9, kth, kth * 0.3, kth * 1.1, *BAD_GUESSES]):
        check(case.run(largest, x, k, torch.tensor(guess, dtype=x.dtype)), x, k)


@everywhere
@pytest.mark.parametrize("k", [1, 200, 19999])
def test_large_enough_for_a_sample(case: Case, k: int) -> None:
    x = normal(20_011, seed=k)
    check(case.run(largest, x, k), x, k)
    check(case.run(largest, x, k, torch.tensor(2.5)), x, k)


def misleading() -> dict[str, Tensor]:
    """Elements of which a strided sample says little."""
    numel = 20_011
    clustered = normal(numel) * 1e-6
    clustered[9_000:9_100] += 1
    few = torch.zeros(numel)
    few[torch.arange(7, numel, 1000)] = normal(21)
    ties = torch.ones(numel)
    ties[::97] = -2
    return {"clustered": clustered, "few": few, "ties": ties, "zeros": torch.zeros(numel)}


@everywhere
@pytest.mark.parametrize("name", misleading())
def test_a_sample_may_mislead(case: Case, name: str) -> None:
    x = misleading()[name]
    for k in case.some([150, 5, 1500]):
        check(case.run(largest, x, k), x, k)


@everywhere
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_candidates_at_hand_are_used_and_never_trusted(case: Case, dtype: torch.dtype) -> None:
    k, residual = 50, case.place(normal(3001, dtype))
    x = normal(3001, dtype).add_(normal(3001, seed=1))
    kth = float(x.abs().topk(k).values[-1])
    limit = torch.tensor(kth * 0.95, dtype=dtype)
    addend = Addend(case.place(normal(3001, seed=1)))
    found = case.run(compact, residual, limit, 4 * k, addend)
    assert k <= int(found.count) <= 4 * k
    check(case.run(largest_of, found, residual, k), x, k)
    bad = [(kth, k - 1), (kth, k), (0.0, 7), (kth * 1.2, k), (math.inf, 0)]
    for guess, capacity in case.some(bad):
        found = case.run(compact, residual, torch.tensor(guess, dtype=dtype), capacity)
        check(case.run(largest_of, found, residual, k), x, k)


@everywhere
def test_the_last_threshold_is_the_next_guess(case: Case) -> None:
    x = normal(20_011)
    guess = None
    for step in range(3):
        x = x * 0.9 + normal(20_011, seed=step + 1) * 0.1
        indices, values, guess = case.run(largest, x, 100, guess)
        check((indices, values, guess), x, 100)


@pytest.mark.parametrize("k", [0, -1, 4, 5])
def test_k_out_of_range_is_refused(k: int) -> None:
    x = normal(4)
    with pytest.raises(RecipeError, match=f"k={k} must be in"):
        largest(x, k)
    with pytest.raises(RecipeError, match=f"k={k} must be in"):
        largest_of(compact(x, torch.tensor(0.1), 4), x, k)


def test_candidates_of_something_else_are_refused() -> None:
    found = compact(normal(4), torch.tensor(0.1), 4)
    with pytest.raises(RecipeError, match=r"were not found in torch\.float64"):
        largest_of(found, normal(4, torch.float64), 1)
