"""Rice's numbers: quotients added up, remainders kept; all implementations the same."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.implementations import Case, cases
from thinwire.kernels.rice import from_indices, numba, reference, to_indices

SETS = st.sets(st.integers(0, 2**62 - 2), max_size=80).map(sorted)


@given(indices=SETS, low_bits=st.integers(0, 62), scale=st.integers(0, 55))
def test_numba_is_the_reference_and_both_invert(
    indices: list[int], low_bits: int, scale: int
) -> None:
    given_indices = torch.tensor(sorted({i >> scale for i in indices}), dtype=torch.int64)
    rows = 2**62 >> scale
    numbers, ascending = reference.from_indices(given_indices, low_bits)
    assert ascending
    ours, ascending = numba.from_indices(given_indices, low_bits)
    assert ascending
    assert torch.equal(ours, numbers)
    for module in (reference, numba):
        out, sound = module.to_indices(numbers.clone(), low_bits, rows)
        assert sound
        assert torch.equal(out, given_indices)


def test_by_hand() -> None:
    numbers, _ = numba.from_indices(torch.tensor([5, 6, 20]), 2)  # gaps 5, 0, 13
    assert numbers.tolist() == [1 << 2 | 1, 1 << 2 | 0, (1 + 3) << 2 | 1]


@given(
    numbers=st.lists(st.integers(0, 2**62), max_size=40),
    low_bits=st.integers(0, 62),
    rows=st.sampled_from([1, 50, 2**40, 2**63 - 1]),
)
def test_what_does_not_fit_is_found_alike(numbers: list[int], low_bits: int, rows: int) -> None:
    """Sums that pass 2^63 included."""
    given_numbers = torch.tensor(sorted(numbers), dtype=torch.int64)
    out, sound = reference.to_indices(given_numbers.clone(), low_bits, rows)
    ours, also_sound = numba.to_indices(given_numbers.clone(), low_bits, rows)
    exact, expected = -1, []
    high = 0
    for number in sorted(numbers):
        exact += 1 + ((number >> low_bits) - high << low_bits) + (number & (1 << low_bits) - 1)
        high = number >> low_bits
        expected.append(exact)
    assert sound == also_sound == all(i < rows for i in expected)
    if sound:
        assert out.tolist() == ours.tolist() == expected


everywhere = pytest.mark.parametrize("case", cases("rice"))


@everywhere
@pytest.mark.parametrize("low_bits", [0, 5, 62])
@pytest.mark.parametrize("count", [0, 1, 5003])
def test_all_are_the_reference_on_much(case: Case, count: int, low_bits: int) -> None:
    draw = torch.Generator().manual_seed(count)
    indices = torch.randint(1, 100, (count,), generator=draw).cumsum(0) - 1
    rows = int(indices[-1]) + 1 if count else 1
    expected, _ = reference.from_indices(indices, low_bits)
    numbers, ascending = case.run(from_indices, indices, low_bits)
    assert torch.equal(numbers.cpu(), expected)
    assert bool(ascending) and ascending.dim() == 0
    out, sound = case.run(to_indices, expected.clone(), low_bits, rows)
    assert torch.equal(out.cpu(), indices)
    assert bool(sound) and sound.dim() == 0
    assert bool(case.run(to_indices, expected.clone(), low_bits, rows - 1)[1]) == (count == 0)


@everywhere
@pytest.mark.parametrize("indices", [[3, 1], [4, 4], [-1, 2], [*range(2000), 1999]])
def test_disorder_is_told(case: Case, indices: list[int]) -> None:
    assert not case.run(from_indices, torch.tensor(indices), 3)[1]


@everywhere
@pytest.mark.parametrize("numbers", [[2**62 - 1] * 3, [2**62, 2**62 + 5, 2**62 + 2**61], [8, 0]])
@pytest.mark.parametrize("low_bits", [0, 3, 62])
def test_sums_that_pass_the_largest_number_are_told(
    case: Case, numbers: list[int], low_bits: int
) -> None:
    given_numbers = torch.tensor(numbers)
    expected, sound = reference.to_indices(given_numbers.clone(), low_bits, 2**63 - 1)
    out, also_sound = case.run(to_indices, given_numbers.clone(), low_bits, 2**63 - 1)
    assert bool(sound) == bool(also_sound)
    if sound:
        assert torch.equal(out.cpu(), expected)
