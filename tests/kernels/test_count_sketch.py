"""Count sketches: where an element goes, in which order sums are made, what comes back."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from support.implementations import Case, bits, cases, normal
from thinwire.errors import RecipeError
from thinwire.kernels.count_sketch import project, recover
from thinwire.rng import hash_to_range, mix64

everywhere = pytest.mark.parametrize("case", cases("count_sketch"))
both = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
Places = Callable[[Tensor, int, int, int], tuple[list[int], list[bool]]]
SEEDS = [7, 2**63 - 1]


def places(indices: Tensor, row: int, buckets: int, seed: int) -> tuple[list[int], list[bool]]:
    """The contract's buckets and signs: one seed a row, a bit that the bucket does not look at."""
    at = hash_to_range(indices, buckets, seed + row).tolist()
    return at, [bool(h & 1) for h in mix64(indices, seed + row).tolist()]


def polynomials(indices: Tensor, row: int, buckets: int, seed: int) -> tuple[list[int], list[bool]]:
    """The contract of "four-wise": cubic, modulo 2^31 - 1, in plain integers."""
    prime = 2**31 - 1
    a, b, c, d, *signs = (h % prime for h in mix64(torch.arange(8), seed + row).tolist())
    at = [(a * x**3 + b * x**2 + c * x + d) % prime * buckets // prime for x in indices.tolist()]
    a, b, c, d = signs
    odd = [(a * x**3 + b * x**2 + c * x + d) % prime % 2 == 1 for x in indices.tolist()]
    return at, odd


def table_of(
    indices: Tensor, values: Tensor, rows: int, buckets: int, seed: int, places: Places = places
) -> Tensor:
    """The contract, one element at a time in the given order."""
    table = np.zeros((rows, buckets), values.numpy().dtype)
    for row in range(rows):
        at, negative = places(indices, row, buckets, seed)
        for i, value in enumerate(values.numpy()):
            table[row, at[i]] += -value if negative[i] else value
    return torch.from_numpy(table)


def recovered(table: Tensor, numel: int, seed: int, how: str, places: Places = places) -> Tensor:
    rows, buckets = table.shape
    estimates = []
    for row in range(rows):
        at, negative = places(torch.arange(numel), row, buckets, seed)
        found = table[row][torch.tensor(at, dtype=torch.int64)]
        estimates.append(torch.where(torch.tensor(negative, dtype=torch.bool), -found, found))
    if how == "median":
        return torch.stack(estimates).sort(dim=0, stable=True).values[rows // 2]
    total = estimates[0]
    for other in estimates[1:]:
        total = total + other
    return total * (1 / rows)


def some(numel: int, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(numel)
    indices = torch.randperm(numel, generator=draw)[:count].sort().values
    return indices, normal(count, dtype, seed=1)


@everywhere
@both
@pytest.mark.parametrize(("rows", "buckets"), [(1, 1), (1, 150), (2, 40), (3, 7), (5, 1000)])
def test_sums_in_the_order_of_the_elements(
    case: Case, dtype: torch.dtype, rows: int, buckets: int
) -> None:
    indices, values = some(900, 87, dtype)
    for seed in SEEDS:
        table = case.run(project, indices, values, rows, buckets, seed)
        assert table.shape == (rows, buckets)
        assert bits(table.reshape(-1)) == bits(
            table_of(indices, values, rows, buckets, seed).reshape(-1)
        )


@everywhere
@both
@pytest.mark.parametrize(
    ("rows", "how"), [(1, "median"), (1, "mean"), (2, "mean"), (3, "median"), (3, "mean"),
                      (4, "mean"), (7, "median")],
)  # fmt: skip
def test_what_comes_back(case: Case, dtype: torch.dtype, rows: int, how: str) -> None:
    table = normal(rows * 50, dtype).view(rows, 50)
    table[:, ::3] = 0  # ties, and zeros of both signs
    found = case.run(recover, table, 333, 5, how)
    assert bits(found) == bits(recovered(table, 333, 5, how))


@everywhere
def test_nothing_in_nothing_out(case: Case) -> None:
    nothing = torch.empty(0, dtype=torch.int64), torch.empty(0)
    table = case.run(project, *nothing, 2, 3, 1)
    assert table.tolist() == [[0.0] * 3] * 2
    assert case.run(recover, table, 4, 1, "mean").tolist() == [0.0] * 4
    assert case.run(recover, table, 0, 1, "mean").numel() == 0


@everywhere
def test_indices_of_more_than_31_bits(case: Case) -> None:
    """Only numbers are hashed: no memory belongs to the indices between them."""
    indices = torch.tensor([5, 2**31 - 1, 2**31, 2**33 + 7, 2**40])
    table = case.run(project, indices, normal(5), 3, 11, 9)
    assert bits(table.reshape(-1)) == bits(table_of(indices, normal(5), 3, 11, 9).reshape(-1))


@everywhere
def test_each_element_is_alone_in_its_own_sketch(case: Case) -> None:
    """One element comes back whole, wherever it lies: the signs undo themselves."""
    for index in (0, 1, 63, 99):
        table = case.run(project, torch.tensor([index]), torch.tensor([-2.5]), 3, 8, 4)
        assert case.run(recover, table, 100, 4, "median")[index].item() == -2.5


@pytest.mark.parametrize(("rows", "buckets"), [(0, 5), (-1, 5), (1, 0), (1, 2**31)])
def test_tables_of_no_size_are_refused(rows: int, buckets: int) -> None:
    with pytest.raises(RecipeError, match=f"rows={rows}.*buckets={buckets}"):
        project(torch.arange(3), normal(3), rows, buckets, 0)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RecipeError, match="2 indices"):
        project(torch.arange(2), normal(3), 1, 4, 0)
    with pytest.raises(RecipeError, match="bfloat16"):
        project(torch.arange(3), normal(3, torch.bfloat16), 1, 4, 0)


@everywhere
@both
def test_four_wise_places_are_those_of_polynomials(case: Case, dtype: torch.dtype) -> None:
    indices, values = some(900, 87, dtype)
    table = case.run(project, indices, values, 3, 40, SEEDS[1], "four-wise")
    expected = table_of(indices, values, 3, 40, SEEDS[1], polynomials)
    assert bits(table.reshape(-1)) == bits(expected.reshape(-1))
    found = case.run(recover, expected, 333, SEEDS[1], "median", "four-wise")
    assert bits(found) == bits(recovered(expected, 333, SEEDS[1], "median", polynomials))


def test_four_wise_places_are_of_31_bits() -> None:
    with pytest.raises(RecipeError, match="use 'mix64'"):
        recover(torch.zeros(1, 1), 2**31, 0, "mean", "four-wise")
