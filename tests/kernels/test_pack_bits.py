"""Bit packing: exact size, exact inverse, all implementations bit for bit the same."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from support.implementations import Case, cases
from thinwire.errors import WireFormatError
from thinwire.kernels.pack_bits import numba, pack_bits, packed_bytes, reference, unpack_bits


def codes_of(count: int, bits: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(1 << bits, (count,), generator=draw, dtype=torch.int32)


@settings(max_examples=300, deadline=None)
@given(bits=st.integers(1, 16), count=st.integers(0, 200), seed=st.integers(0, 2**32))
def test_numba_is_the_reference_and_both_invert(bits: int, count: int, seed: int) -> None:
    codes = codes_of(count, bits, seed)
    packed = reference.pack_bits(codes, bits)
    assert packed.dtype == torch.uint8
    assert packed.numel() == packed_bytes(count, bits) == -(-count * bits // 8)
    assert torch.equal(numba.pack_bits(codes, bits), packed)
    for unpack in (reference.unpack_bits, numba.unpack_bits, unpack_bits):
        out = unpack(packed, count, bits)
        assert out.dtype == torch.int32
        assert torch.equal(out, codes)


@pytest.mark.parametrize("case", cases("pack_bits"))
@pytest.mark.parametrize("bits", range(1, 17))
@pytest.mark.parametrize("count", [0, 1, 13, 5001])
def test_all_are_the_reference_on_much(case: Case, count: int, bits: int) -> None:
    """Codes have bits that do not belong; bytes begin anywhere."""
    draw = torch.Generator().manual_seed(bits)
    wild = torch.randint(-(2**31), 2**31 - 1, (count,), generator=draw, dtype=torch.int32)
    packed = reference.pack_bits(wild, bits)
    assert torch.equal(case.run(pack_bits, wild, bits).cpu(), packed)
    elsewhere = case.place(torch.cat((packed[:0].new_zeros(3), packed)))[3:]
    out = case.run(unpack_bits, elsewhere, count, bits)
    assert out.dtype == torch.int32
    assert torch.equal(out.cpu(), wild & ((1 << bits) - 1))


@settings(max_examples=100, deadline=None)
@given(bits=st.integers(1, 16), count=st.integers(1, 60), seed=st.integers(0, 2**32))
def test_layout_is_one_little_endian_number(bits: int, count: int, seed: int) -> None:
    codes = codes_of(count, bits, seed)
    number = sum(code << (bits * i) for i, code in enumerate(codes.tolist()))
    assert bytes(pack_bits(codes, bits).tolist()) == number.to_bytes(
        -(-count * bits // 8), "little"
    )


@settings(max_examples=50, deadline=None)
@given(bits=st.integers(1, 16), count=st.integers(1, 60), seed=st.integers(0, 2**32))
def test_bits_that_do_not_belong_are_dropped_alike(bits: int, count: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    wild = torch.randint(-(2**31), 2**31 - 1, (count,), generator=draw, dtype=torch.int32)
    expected = reference.pack_bits(wild & ((1 << bits) - 1), bits)
    assert torch.equal(reference.pack_bits(wild, bits), expected)
    assert torch.equal(numba.pack_bits(wild, bits), expected)


@pytest.mark.parametrize(("count", "bits"), [(3, 3), (1, 1), (7, 5), (5, 16)])
def test_wrong_length_and_spare_bits_are_refused(count: int, bits: int) -> None:
    packed = pack_bits(codes_of(count, bits, 1), bits)
    for wrong in (packed[:-1], torch.cat((packed, packed[:1]))):
        with pytest.raises(WireFormatError, match="bytes"):
            unpack_bits(wrong, count, bits)
    for spare in range(count * bits, packed.numel() * 8):
        damaged = packed.clone()
        damaged[-1] |= 1 << (spare % 8)
        with pytest.raises(WireFormatError, match="spare"):
            unpack_bits(damaged, count, bits)


@pytest.mark.parametrize("bits", [0, 17, -1])
def test_widths_out_of_range(bits: int) -> None:
    with pytest.raises(ValueError, match="bits"):
        pack_bits(torch.zeros(3, dtype=torch.int32), bits)
    with pytest.raises(ValueError, match="bits"):
        unpack_bits(torch.zeros(3, dtype=torch.uint8), 3, bits)
