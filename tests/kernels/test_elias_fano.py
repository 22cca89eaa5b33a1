"""Low bits apart from high parts: the layout, and all implementations bit for bit the same."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.implementations import Case, cases
from thinwire.kernels.elias_fano import join, low_words, numba, reference, split

NUMBERS = st.lists(st.integers(0, 2**62 - 1), max_size=100).map(sorted)


@given(numbers=NUMBERS, low_bits=st.integers(55, 62))
def test_large_numbers(numbers: list[int], low_bits: int) -> None:
    check(torch.tensor(numbers, dtype=torch.int64), low_bits)


@given(numbers=NUMBERS, low_bits=st.integers(0, 20))
def test_small_numbers(numbers: list[int], low_bits: int) -> None:
    check(torch.tensor([n >> 50 for n in numbers], dtype=torch.int64), low_bits)


def check(numbers: torch.Tensor, low_bits: int) -> None:
    count = numbers.numel()
    size = (int(numbers[-1]) >> low_bits) + count if count else 0
    words = reference.split(numbers, low_bits, size)
    assert words.numel() == low_words(count, low_bits) + (size + 63) // 64
    assert torch.equal(numba.split(numbers, low_bits, size), words)
    for module in (reference, numba):
        joined, found = module.join(words, count, low_bits)
        assert torch.equal(joined, numbers)
        assert int(found) == count


def test_by_hand() -> None:
    """5, 8, 8, 15, 32 with two low bits, the example of Vigna's paper."""
    words = numba.split(torch.tensor([5, 8, 8, 15, 32]), 2, 13)
    low, high = words.tolist()
    assert low == 0b00_11_00_00_01
    assert high == sum(1 << bit for bit in (1 + 0, 2 + 1, 2 + 2, 3 + 3, 8 + 4))


@pytest.mark.parametrize("case", cases("elias_fano"))
@pytest.mark.parametrize("low_bits", [0, 1, 6, 33, 62])
@pytest.mark.parametrize("count", [0, 1, 1501])
def test_all_are_the_reference_on_much(case: Case, count: int, low_bits: int) -> None:
    draw = torch.Generator().manual_seed(count)
    high = torch.randint(5 if low_bits < 60 else 2, (count,), generator=draw).cumsum(0)
    high = high.clamp(max=(1 << (63 - low_bits)) - 1)
    numbers = (high << low_bits) + torch.randint(1 << low_bits, (count,), generator=draw)
    size = int(high[-1]) + count if count else 0
    words = reference.split(numbers, low_bits, size)
    assert torch.equal(case.run(split, numbers, low_bits, size).cpu(), words)
    joined, found = case.run(join, words, count, low_bits)
    assert torch.equal(joined.cpu(), numbers)
    assert int(found) == count
    if count:
        words[-1] ^= 1 << 62  # one bit more or less
        assert int(case.run(join, words, count, low_bits)[1]) in (count - 1, count + 1)
