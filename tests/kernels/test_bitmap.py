"""Vectors of bits: the layout, and Numba and torch bit for bit the same."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from thinwire.kernels.bitmap import numba, reference, words_for

SETS = st.sets(st.integers(0, 400), max_size=200).map(lambda s: torch.tensor(sorted(s)).long())


@given(positions=SETS, spare=st.integers(0, 70))
def test_numba_is_the_reference_and_both_invert(positions: torch.Tensor, spare: int) -> None:
    size = (int(positions[-1]) + 1 if positions.numel() else 0) + spare
    words = reference.set_bits(positions, size)
    assert words.numel() == words_for(size)
    assert torch.equal(numba.set_bits(positions, size), words)
    for module in (reference, numba):
        assert module.count_bits(words) == positions.numel()
        assert torch.equal(module.positions(words, positions.numel()), positions)


@given(positions=SETS)
def test_layout_is_one_little_endian_number(positions: torch.Tensor) -> None:
    number = sum(1 << p for p in positions.tolist())
    words = numba.set_bits(positions, 448)
    assert bytes(words.view(torch.uint8).tolist()) == number.to_bytes(56, "little")
