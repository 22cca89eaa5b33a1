"""Low bits apart from high parts: the layout, and Numba and torch bit for bit the same."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from thinwire.kernels.elias_fano import low_words, numba, reference

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
        assert torch.equal(module.join(words, count, low_bits), numbers)


def test_by_hand() -> None:
    """5, 8, 8, 15, 32 with two low bits, the example of Vigna's paper."""
    words = numba.split(torch.tensor([5, 8, 8, 15, 32]), 2, 13)
    low, high = words.tolist()
    assert low == 0b00_11_00_00_01
    assert high == sum(1 << bit for bit in (1 + 0, 2 + 1, 2 + 2, 3 + 3, 8 + 4))
