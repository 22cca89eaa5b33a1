"""One checksum: all implementations agree bit for bit, no damage to one word escapes it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from support.implementations import Case, cases
from thinwire.kernels.checksum import checksum, numba, reference

MASK = (1 << 64) - 1


def words_of(numbers: list[int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


WORDS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40).map(words_of)


@settings(max_examples=200, deadline=None)
@given(words=WORDS, first=st.integers(0, 2**40))
def test_numba_is_the_reference(words: Tensor, first: int) -> None:
    ours = numba.checksum(words, first)
    assert ours.dtype == torch.int64
    assert ours.dim() == 0
    assert int(ours) == int(reference.checksum(words, first)) == int(checksum(words, first))


@pytest.mark.parametrize("case", cases("checksum"))
@pytest.mark.parametrize(("count", "first"), [(0, 3), (1, 2**40), (7001, 0), (7001, 1)])
def test_all_are_the_reference_on_much(case: Case, count: int, first: int) -> None:
    draw = torch.Generator().manual_seed(3)
    words = torch.randint(-(2**63), 2**63 - 1, (count,), generator=draw)
    found = case.run(checksum, words, first)
    assert found.dtype == torch.int64 and found.dim() == 0
    assert int(found) == int(reference.checksum(words, first))


def test_by_hand() -> None:
    """The definition in Python's own integers: what another implementation must compute."""

    def weight(position: int) -> int:
        x = (position + reference.SEED * 0x9E3779B97F4A7C15) & MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        return (x ^ (x >> 31)) | 1

    words = [0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF]
    expected = sum((w ^ (w >> 32)) * weight(i) for i, w in enumerate(words)) & MASK
    signed = words_of([w - 2**64 if w >> 63 else w for w in words])
    assert int(reference.checksum(signed)) & MASK == expected


@settings(max_examples=100, deadline=None)
@given(words=WORDS, data=st.data())
def test_ranges_add_up(words: Tensor, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, words.numel()))
    parts = checksum(words[:cut]) + checksum(words[cut:], first=cut)
    assert int(parts) == int(checksum(words))


def test_one_and_two_flipped_bits() -> None:
    """Two flips too: plain multilinear sums miss the top bits of any two words."""
    words = torch.randint(-(2**63), 2**63 - 1, (3,), generator=torch.Generator().manual_seed(1))
    sound = int(checksum(words))
    flips = [(word, bit) for word in range(3) for bit in range(64)]
    for a, flip in enumerate(flips):
        for other in flips[a:]:
            damaged = words.clone()
            for word, bit in {flip, other}:
                damaged[word] ^= -(2**63) if bit == 63 else 1 << bit
            assert int(checksum(damaged)) != sound, (flip, other)


def test_order_matters() -> None:
    words = torch.arange(1, 100)
    assert int(checksum(words)) != int(checksum(words.flip(0)))
