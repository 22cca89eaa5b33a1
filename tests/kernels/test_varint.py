"""LEB128: known bytes, canonical form, Numba and torch the same."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thinwire.errors import WireFormatError
from thinwire.kernels import use
from thinwire.kernels.varint import decode, numba, reference

NUMBERS = st.lists(st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1)), max_size=60).map(
    lambda numbers: torch.tensor(numbers, dtype=torch.int64)
)


@given(numbers=NUMBERS)
def test_numba_is_the_reference_and_both_invert(numbers: torch.Tensor) -> None:
    data = reference.encode(numbers)
    assert torch.equal(numba.encode(numbers), data)
    for module in (reference, numba):
        out, sound = module.decode(data)
        assert sound
        assert torch.equal(out, numbers)


@pytest.mark.parametrize(
    ("number", "data"), [(0, [0]), (127, [127]), (128, [128, 1]), (624485, [0xE5, 0x8E, 0x26])]
)
def test_by_hand(number: int, data: list[int]) -> None:
    assert numba.encode(torch.tensor([number])).tolist() == data


@pytest.mark.parametrize("data", [[128], [1, 255], [128, 0], [255] * 9 + [1], [128] * 30 + [1]])
@pytest.mark.parametrize("implementation", ["numba", "reference"])
def test_unfinished_or_padded_numbers_are_refused(data: list[int], implementation: str) -> None:
    with use(implementation), pytest.raises(WireFormatError):  # type: ignore[arg-type]
        decode(torch.tensor(data, dtype=torch.uint8))


@given(data=st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    """Alike in both, and canonical: what is read is written the same."""
    wire = torch.tensor(list(data), dtype=torch.uint8)
    out, sound = reference.decode(wire)
    ours, also_sound = numba.decode(wire)
    assert sound == also_sound
    if sound:
        assert torch.equal(out, ours)
        assert torch.equal(numba.encode(out), wire)
