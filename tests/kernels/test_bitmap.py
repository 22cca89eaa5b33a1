"""Vectors of bits: the layout, and all implementations bit for bit the same."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.implementations import Case, cases
from thinwire.kernels.bitmap import count_bits, numba, positions, reference, set_bits, words_for

SETS = st.sets(st.integers(0, 400), max_size=200).map(lambda s: torch.tensor(sorted(s)).long())


@given(positions=SETS, spare=st.integers(0, 70))
def test_numba_is_the_reference_and_both_invert(positions: torch.Tensor, spare: int) -> None:
    size = (int(positions[-1]) + 1 if positions.numel() else 0) + spare
    words = reference.set_bits(positions, size)
    assert words.numel() == words_for(size)
    assert torch.equal(numba.set_bits(positions, size), words)
    for module in (reference, numba):
        assert module.count_bits(words) == positions.numel()
        listed, found = module.positions(words, positions.numel())
        assert torch.equal(listed, positions)
        assert int(found) == positions.numel()


@given(positions=SETS)
def test_layout_is_one_little_endian_number(positions: torch.Tensor) -> None:
    number = sum(1 << p for p in positions.tolist())
    words = numba.set_bits(positions, 448)
    assert bytes(words.view(torch.uint8).tolist()) == number.to_bytes(56, "little")


@pytest.mark.parametrize("case", cases("bitmap"))
@pytest.mark.parametrize("size", [0, 1, 64, 9001])
@pytest.mark.parametrize("every", [1, 3, 977])
def test_all_are_the_reference_on_much(case: Case, size: int, every: int) -> None:
    draw = torch.Generator().manual_seed(size)
    given_positions = torch.randperm(size, generator=draw)[: -(-size // every)].sort().values
    words = reference.set_bits(given_positions, size)
    assert torch.equal(case.run(set_bits, given_positions, size).cpu(), words)
    assert case.run(count_bits, words) == given_positions.numel()
    listed, found = case.run(positions, words, given_positions.numel())
    assert torch.equal(listed.cpu(), given_positions)
    assert found.dim() == 0 and int(found) == given_positions.numel()


@pytest.mark.parametrize("case", cases("bitmap"))
@pytest.mark.parametrize("expected", [0, 1, 2, 4, 100])
def test_a_wrong_count_is_told(case: Case, expected: int) -> None:
    """And there is room for as many as were expected, whatever they are."""
    words = reference.set_bits(torch.tensor([5, 64, 200]), 201)
    listed, found = case.run(positions, words, expected)
    assert int(found) == 3
    assert listed.shape == (expected,)


@pytest.mark.parametrize("case", cases("bitmap"))
def test_more_words_than_are_looked_at_in_one_turn(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case.implementation == "triton":
        monkeypatch.setattr("thinwire.kernels.bitmap.triton.FEW", 0)
    given_positions = torch.arange(3, 70_000, 97)
    words = reference.set_bits(given_positions, 70_000)
    listed, _ = case.run(positions, words, given_positions.numel())
    assert torch.equal(listed.cpu(), given_positions)
