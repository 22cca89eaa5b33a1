"""Huffman's code: optimal, canonical, prefix-free; Numba and torch bit for bit the same."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from thinwire.kernels.huffman import Code, numba, reference
from thinwire.kernels.huffman.code import BASES, LONGEST, SYMBOLS, WIDTHS

NUMBERS = st.lists(
    st.one_of(st.integers(0, 9), st.integers(0, 5000), st.integers(0, 2**63 - 1)),
    min_size=1,
    max_size=120,
).map(lambda numbers: torch.tensor(numbers, dtype=torch.int64))
FREQUENCIES = st.lists(st.one_of(st.just(0), st.integers(1, 2**40)), min_size=1, max_size=SYMBOLS)


@given(numbers=NUMBERS)
def test_numba_is_the_reference_and_both_invert(numbers: torch.Tensor) -> None:
    frequencies = reference.histogram(numbers)
    assert torch.equal(numba.histogram(numbers), frequencies)
    code = Code.fitting(frequencies.tolist())
    assert code.sound
    size = code.size(frequencies.tolist())
    words = reference.encode(numbers, code, size)
    assert torch.equal(numba.encode(numbers, code, size), words)
    for module in (reference, numba):
        out, used = module.decode(words, numbers.numel(), code)
        assert torch.equal(out, numbers)
        assert used == size


@given(numbers=NUMBERS, words=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_any_words(numbers: torch.Tensor, words: list[int]) -> None:
    """Alike in both: the same numbers, or neither finds them all."""
    code = Code.fitting(reference.histogram(numbers).tolist())
    wire = torch.tensor(words, dtype=torch.int64)
    out, used = reference.decode(wire, 30, code)
    ours, also_used = numba.decode(wire, 30, code)
    assert used == also_used
    if used >= 0:
        assert torch.equal(out, ours)


def test_symbols_cover_all_numbers_once() -> None:
    ends = [
        base + (1 << width) for base, width in zip(BASES.tolist(), WIDTHS.tolist(), strict=True)
    ]
    assert BASES.tolist() == [0, *ends[:-1]]
    assert ends[-1] == 2**63


@given(frequencies=FREQUENCIES)
def test_codes_are_prefix_free_and_near_optimal(frequencies: list[int]) -> None:
    code = Code.fitting(frequencies)
    used = [s for s, f in enumerate(frequencies) if f]
    assert code.sound or not used
    assert [s for s, length in enumerate(code.lengths) if length] == used
    codes = {f"{int(code.codes[s]):0{code.lengths[s]}b}"[::-1] for s in used}
    assert len(codes) == len(used)
    assert not any(a != b and b.startswith(a) for a in codes for b in codes)
    total = sum(frequencies)
    if len(used) > 1 and total < 2**LONGEST:  # where no length is limited
        entropy = sum(-f / total * math.log2(f / total) for f in frequencies if f)
        mean = sum(f * length for f, length in zip(frequencies, code.lengths, strict=False)) / total
        assert entropy - 1e-9 <= mean < entropy + 1


def test_lengths_by_hand() -> None:
    assert Code.fitting([5, 0, 1, 1]).lengths == (1, 0, 2, 2)
    assert Code.fitting([40, 30, 20, 10]).lengths == (1, 2, 3, 3)
    assert Code.fitting([0, 7]).lengths == (0, 1)
    assert Code((1, 2, 3, 3)).codes[:4].tolist() == [0b0, 0b01, 0b011, 0b111]
    for lengths in ((1, 1, 1), (2, 2), (1, 2), (13,), (0,), ()):
        assert not Code(lengths).sound
