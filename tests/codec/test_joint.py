"""Several tensors in one wire: each as it is alone, and damage is refused."""

import struct
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from support.codec.cases import PAIRS as WITH_A_RAW_HALF
from support.codec.cases import context, random_sparse, random_values
from support.codec.damage import LargestResult, resealed
from thinwire.codec import Joint, Pair
from thinwire.codec.container import HEADER_BYTES
from thinwire.codec.index import BloomIndex, HuffmanIndex, VarintIndex
from thinwire.codec.joint import ROW_BYTES
from thinwire.codec.value import FitPolyValue, QuantileValue
from thinwire.errors import WireFormatError
from thinwire.types import Layout, Selection, Sparse

PAIRS = {name: pair for name, pair in WITH_A_RAW_HALF.items() if Joint.takes(pair)} | {
    "varint+quantile": Pair(VarintIndex(), QuantileValue()),
    "huffman+quantile": Pair(HuffmanIndex(), QuantileValue()),
    "bloom+fit_poly": Pair(BloomIndex(), FitPolyValue()),
    "bloom+raw": Pair(BloomIndex()),
}
FEW = ("raw+qsgd", "raw+sign", "raw+3lc", "varint+quantile", "bloom+fit_poly")
LAYOUT = Layout(
    names=("w", "bias", "nothing", "one", "v", "tail"),
    sizes=(90, 7, 0, 1, 300, 2),
    past=(False, True, True, False, False, True),
    each=True,
)
NUMEL = sum(LAYOUT.sizes)
CONTEXT = replace(context(), tensor="w+5", layout=LAYOUT, numel=NUMEL, dtype=torch.float32)


def chosen(seed: int = 3) -> tuple[Tensor, Sparse]:
    """A tensor for each, and of those with a selection of their own a few elements."""
    dense = random_values(NUMEL, torch.float32, seed)
    mask = torch.zeros(NUMEL, dtype=torch.bool)
    for _, start, end, past in LAYOUT.parts():
        mask[start:end] = past
    mask[random_sparse(NUMEL, 40, seed=seed).indices] = True
    indices = mask.nonzero().view(-1)
    return dense, Sparse(indices, dense[indices], NUMEL)


def selections() -> list[Selection]:
    dense, sparse = chosen()
    nothing = sparse.indices[(sparse.indices >= 90) & (sparse.indices != 97)]
    none_of_the_first = nothing[(nothing < 97) | (nothing >= 398)]
    return [dense, sparse, Sparse(none_of_the_first, dense[none_of_the_first], NUMEL)]


def made(name: str, form: int = -2) -> tuple[Joint, Tensor]:
    joint = Joint(PAIRS[name])
    return joint, joint.encode(selections()[form], CONTEXT)


def own_part(s: Selection, start: int, end: int) -> Selection:
    if not isinstance(s, Sparse):
        return s[start:end]
    inside = (s.indices >= start) & (s.indices < end)
    return Sparse(s.indices[inside] - start, s.values[inside], end - start)


@pytest.mark.parametrize("form", range(3))
@pytest.mark.parametrize("name", PAIRS)
def test_each_tensor_comes_back_as_it_does_alone(name: str, form: int) -> None:
    pair, s = PAIRS[name], selections()[form]
    dense, _ = chosen()
    out = Joint(pair).decode(Joint(pair).encode(s, replace(CONTEXT, source=dense)), CONTEXT)
    assert isinstance(out, Sparse) is isinstance(s, Sparse)
    assert not isinstance(out, Sparse) or bool((out.indices[1:] > out.indices[:-1]).all())
    for tensor, start, end, past in LAYOUT.parts():
        expected = own_part(s, start, end)
        if not past:
            alone = replace(context(), tensor=tensor, source=dense[start:end])
            expected = pair.decode(pair.encode(expected, alone), alone)
        found = own_part(out, start, end)
        if isinstance(found, Sparse) and isinstance(expected, Sparse):
            assert torch.equal(found.indices, expected.indices)
            found, expected = found.values, expected.values
        assert isinstance(found, Tensor) and isinstance(expected, Tensor)
        assert torch.equal(found, expected)


def test_which_codecs_it_is_for() -> None:
    assert Joint.takes(Pair(VarintIndex(), QuantileValue()))
    assert not Joint.takes(Pair(VarintIndex()))  # tensors share its parts
    assert not Joint.takes(WITH_A_RAW_HALF["raw+centroid2"])  # steady: sizes must be known
    assert not Joint.takes(None)


@pytest.mark.parametrize("name", FEW)
def test_every_bit_flip_is_refused(name: str) -> None:
    joint, wire = made(name)
    for byte in range(wire.numel()):
        damaged = wire.clone()
        damaged[byte] ^= 1 << byte % 8
        with pytest.raises(WireFormatError):
            joint.decode(damaged, CONTEXT)


@pytest.mark.parametrize("name", FEW)
def test_every_truncation_and_extension_is_refused(name: str) -> None:
    joint, wire = made(name)
    for length in range(0, wire.numel(), 4):
        with pytest.raises(WireFormatError):
            joint.decode(wire[:length], CONTEXT)
    for extra in (1, 8, 64):
        with pytest.raises(WireFormatError):
            joint.decode(torch.cat((wire, wire.new_zeros(extra))), CONTEXT)


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("lie", [-1, -(2**63), 2**20, 2**40, 2**62, 2**63 - 1])
@pytest.mark.parametrize("name", FEW)
def test_lies_in_the_table_ask_for_no_memory(name: str, lie: int, form: int) -> None:
    joint, wire = made(name, form)
    for word in range(9):  # three tensors: count, index bytes, value bytes
        for resum in (False, True):
            data = bytearray(wire.numpy().tobytes())
            at = HEADER_BYTES + 8 * word
            (truth,) = struct.unpack_from("<q", data, at)
            struct.pack_into("<q", data, at, lie)
            if resum and word % 3 == 0:  # the header's count lies along
                (count,) = struct.unpack_from("<Q", data, 24)
                struct.pack_into("<Q", data, 24, (count - truth + lie) % 2**64)
            with LargestResult() as largest, pytest.raises(WireFormatError):
                joint.decode(resealed(bytes(data)), CONTEXT)
            assert largest.numel < 10_000


@pytest.mark.parametrize(
    ("what", "form", "offset", "lie"),
    [
        ("joint", "<B", 6, 2),
        ("joint", "<B", 6, 0b10000),
        ("joint", "<B", 6, 0b11010),
        ("numel", "<Q", 16, NUMEL + 1),
        ("elements was due", "<Q", 16, NUMEL - 1),
        ("count", "<Q", 24, 2**40),
        ("not as many", "<Q", 24, 12),
        ("length", "<Q", 32, ROW_BYTES),
        ("dtype", "<B", 7, 2),
        ("step", "<I", 56, 4),
        ("tensor", "<I", 60, 7),
    ],
)
def test_lying_headers_are_refused_by_name(what: str, form: str, offset: int, lie: int) -> None:
    joint, wire = made("varint+quantile")
    data = bytearray(wire.numpy().tobytes())
    struct.pack_into(form, data, offset, lie)
    with pytest.raises(WireFormatError, match=what):
        joint.decode(resealed(bytes(data)), CONTEXT)


def test_padding_that_is_not_zero_is_refused() -> None:
    joint, wire = made("raw+sign")
    end = HEADER_BYTES + 3 * ROW_BYTES + 4 * 9  # the values of nine elements that travel whole
    data = bytearray(wire.numpy().tobytes())
    data[end] = 1
    with pytest.raises(WireFormatError, match="padding"):
        joint.decode(resealed(bytes(data)), CONTEXT)


def test_an_error_names_the_tensor() -> None:
    joint, wire = made("raw+sign", 0)
    data = bytearray(wire.numpy().tobytes())
    data[-41] |= 0x80  # the sign of the scale, before 38 bytes of signs and two of padding
    with pytest.raises(WireFormatError, match="'v' in a joint payload: the scale must not be neg"):
        joint.decode(resealed(bytes(data)), CONTEXT)


def test_a_joint_wire_is_no_single_one_nor_the_other_way_round() -> None:
    pair, s = PAIRS["varint+quantile"], chosen()[1]
    with pytest.raises(WireFormatError, match="joint"):
        pair.decode(Joint(pair).encode(s, CONTEXT), CONTEXT)
    with pytest.raises(WireFormatError, match="joint"):
        Joint(pair).decode(pair.encode(s, CONTEXT), CONTEXT)
    other = replace(LAYOUT, past=(False, True, True, False, False, False))
    with pytest.raises(WireFormatError, match="do not fill"):
        Joint(pair).decode(Joint(pair).encode(s, CONTEXT), replace(CONTEXT, layout=other))


@pytest.mark.parametrize("name", FEW)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), damage=st.integers(1, 20))
def test_sealed_nonsense_is_refused_or_a_selection(name: str, seed: int, damage: int) -> None:
    """Whoever lies with the right checksum gets an error, or elements of this unit alone."""
    joint, wire = made(name, seed % 2)
    draw = torch.Generator().manual_seed(seed)
    data = wire.clone()
    where = torch.randint(HEADER_BYTES, wire.numel(), (damage,), generator=draw)
    data[where] = torch.randint(256, (damage,), generator=draw).to(torch.uint8)
    try:
        with LargestResult() as largest:
            out = joint.decode(resealed(data.numpy().tobytes()), CONTEXT)
    except WireFormatError:
        return
    finally:
        assert largest.numel < 10_000
    if isinstance(out, Sparse):
        assert bool((out.indices[1:] > out.indices[:-1]).all())
        assert int(out.indices[0]) >= 0 and int(out.indices[-1]) < NUMEL
    else:
        assert out.shape == (NUMEL,)
