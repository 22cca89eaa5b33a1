"""Rice's numbers: quotients added up, remainders kept; Numba and torch the same."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from thinwire.kernels.rice import numba, reference

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


def test_disorder_is_told() -> None:
    for module in (reference, numba):
        for indices in ([3, 1], [4, 4], [-1, 2]):
            assert not module.from_indices(torch.tensor(indices), 3)[1]
