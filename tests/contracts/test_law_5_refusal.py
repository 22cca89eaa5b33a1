"""Law 5, refusal: damaged, foreign or lying bytes raise WireFormatError and are never decoded.

Covers codec/container.py.
"""

import struct
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from support.codec.cases import PAIRS, VALUES, context, random_sparse, random_values
from support.codec.damage import LargestResult, as_wire, resealed
from thinwire.codec import Pair
from thinwire.codec.container import HEADER_BYTES, Header, address_of, pack, unpack
from thinwire.codec.index import RawIndex
from thinwire.codec.value import RawValue
from thinwire.cookbook.registry import pieces
from thinwire.errors import RecipeError, WireFormatError
from thinwire.types import PADDING, Sparse, ValueCodec


def small(pair: Pair) -> Tensor:
    return pair.encode(random_sparse(40, 11, seed=5), context())


@pytest.mark.parametrize("name", PAIRS)
def test_every_bit_flip_is_refused(name: str) -> None:
    pair = PAIRS[name]
    wire = small(pair)
    for byte in range(wire.numel()):
        for bit in range(8):
            damaged = wire.clone()
            damaged[byte] ^= 1 << bit
            with pytest.raises(WireFormatError):
                pair.decode(damaged, context())


@pytest.mark.parametrize("name", PAIRS)
def test_every_truncation_and_extension_is_refused(name: str) -> None:
    pair = PAIRS[name]
    wire = small(pair)
    for length in range(wire.numel()):
        with pytest.raises(WireFormatError):
            pair.decode(wire[:length], context())
    for extra in (1, 8, 64):
        with pytest.raises(WireFormatError):
            pair.decode(torch.cat((wire, wire.new_zeros(extra))), context())


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200), lead=st.integers(0, HEADER_BYTES))
def test_random_bytes_are_refused(data: bytes, lead: int) -> None:
    for pair in (PAIRS["raw+raw"], PAIRS["raw+qsgd"]):
        start = bytes(small(pair)[:lead].tolist())
        with pytest.raises(WireFormatError):
            pair.decode(as_wire(start + data), context())


@pytest.mark.parametrize("name", PAIRS)
def test_other_codecs_bytes_are_refused(name: str) -> None:
    pair = PAIRS[name]
    wire = small(pair)
    for other in PAIRS.values():
        foreign = small(other)
        if (other.index.id, other.value.id) != (pair.index.id, pair.value.id):
            with pytest.raises(WireFormatError, match="codec"):
                pair.decode(foreign, context())
        if not torch.equal(foreign, wire):
            for cut in (HEADER_BYTES - 8, HEADER_BYTES, HEADER_BYTES + 8):
                with pytest.raises(WireFormatError):
                    pair.decode(torch.cat((wire[:cut], foreign[cut:])), context())


@pytest.mark.parametrize("count", [0, 1, 9, 600])
@pytest.mark.parametrize("name", VALUES)
def test_value_parts_of_any_other_length_are_refused(name: str, count: int) -> None:
    codec = VALUES[name]
    part = codec.encode(random_values(count, torch.float32, 1), 3)
    assert codec.decode(part, count, torch.float32).numel() == count
    for length in {0, 1, part.numel() - 1, part.numel() + 1, part.numel() + 8} - {part.numel(), -1}:
        other = torch.zeros(length, dtype=torch.uint8)
        other[: part.numel()] = part[:length]
        with pytest.raises(WireFormatError):
            codec.decode(other, count, torch.float32)
    with pytest.raises(WireFormatError):
        codec.decode(part, 2**62, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", VALUES)
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), damage=st.integers(1, 40))
def test_value_parts_of_nonsense(name: str, dtype: torch.dtype, seed: int, damage: int) -> None:
    """Without the checksum's shield: a value for each count, or WireFormatError."""
    codec: ValueCodec = VALUES[name]
    part = codec.encode(random_values(45, dtype, 1), 3).clone()
    draw = torch.Generator().manual_seed(seed)
    where = torch.randint(part.numel(), (damage,), generator=draw)
    part[where] = torch.randint(256, (damage,), generator=draw).to(torch.uint8)
    try:
        out = codec.decode(part, 45, dtype)
    except WireFormatError:
        return
    assert out.shape == (45,)
    assert out.dtype == dtype


@pytest.mark.parametrize("name", ["raw"])  # the others: tests/codec/index
@pytest.mark.parametrize("rows", [50, 2**31, 2**40])
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), damage=st.integers(1, 40))
def test_index_parts_of_nonsense(name: str, rows: int, seed: int, damage: int) -> None:
    codec = pieces("index")[name]()
    part = codec.encode(torch.arange(0, 45), rows, True).clone()
    draw = torch.Generator().manual_seed(seed)
    where = torch.randint(part.numel(), (damage,), generator=draw)
    part[where] = torch.randint(256, (damage,), generator=draw).to(torch.uint8)
    try:
        out = codec.decode(part, 45, rows)
    except WireFormatError:
        return
    assert out.shape == (45,)
    assert out.dtype == torch.int64
    assert int(out.min()) >= 0
    assert int(out.max()) < rows


# Header: magic 0, version 4, flags 6, dtype 7, index id 8, value id 10, width 12, numel 16,
# count 24, index bytes 32, value bytes 40, checksum 48, step 56, tensor 60.
@pytest.mark.parametrize(
    ("what", "form", "offset", "lie"),
    [
        ("magic", "<4s", 0, b"GZIP"),
        ("version", "<H", 4, 3),
        ("flags", "<B", 6, 0x80),
        ("flags", "<B", 6, 0x02 | 0x01),
        ("dtype", "<B", 7, 0),
        ("dtype", "<B", 7, 200),
        ("codec", "<H", 8, 999),
        ("codec", "<H", 10, 999),
        ("width", "<I", 12, 3),
        ("width", "<I", 12, 0),
        ("count", "<Q", 16, 10),
        ("numel", "<Q", 16, 2**64 - 1),
        ("count", "<Q", 24, 41),
        ("count", "<Q", 24, 2**63),
        ("bytes", "<Q", 24, 12),
        ("length", "<Q", 32, 2**63),
        ("length", "<Q", 32, 2**64 - 4),
        ("length", "<Q", 40, 2**40),
        ("padding", "<Q", 40, 43),
        ("checksum", "<Q", 48, 0),
        ("step must be 0, found 4", "<I", 56, 4),
        ("tensor must be .*'layer.weight'; found 0x00000007", "<I", 60, 7),
    ],
)
def test_lying_headers_are_refused_by_name(
    what: str, form: str, offset: int, lie: int | bytes
) -> None:
    data = bytearray(small(PAIRS["raw+raw"]).numpy().tobytes())
    struct.pack_into(form, data, offset, lie)
    wire = as_wire(bytes(data)) if what == "checksum" else resealed(bytes(data))
    with pytest.raises(WireFormatError, match=what):
        PAIRS["raw+raw"].decode(wire, context())


@pytest.mark.parametrize("name", PAIRS)
def test_another_steps_and_another_tensors_payload_are_refused(name: str) -> None:
    pair, now = PAIRS[name], context(step=5)
    s = random_sparse(40, 11, seed=5)
    for other, what in (
        (replace(now, step=now.step - 1), f"step must be {now.step}, found {now.step - 1}"),
        (replace(now, step=now.step + 2**32 + 1), f"step must be {now.step}, found"),
        (replace(now, tensor="layer.bias"), f"tensor must be .*{now.tensor!r}; found 0x"),
    ):
        with pytest.raises(WireFormatError, match=what):
            pair.decode(pair.encode(s, other), now)
        if pair.is_steady:
            like = Sparse(s.indices, s.values, s.numel, padded=True)
            wires = pair.encode(like, other)[None]
            with pytest.raises(WireFormatError, match="of another step or tensor"):
                pair.decode_rows(wires, like, now)
            pair.decode_rows(wires, like, other)


@pytest.mark.parametrize("rows", [50, 2**16, 2**17, 2**31 + 5])
def test_slots_with_padding_come_back_or_are_refused(rows: int) -> None:
    """Raw indices in any order; of 2^16 rows sorted, since the last has the bits of padding."""
    pair, indices = PAIRS["raw+raw"], torch.tensor([7, PADDING, rows - 1, 3, PADDING])
    s = Sparse(indices, torch.tensor([1.0, 0, 2, 3, 0]), rows, ordered=False, padded=True)
    wire = pair.encode(s, context())
    out = pair.decode(wire, context())
    assert isinstance(out, Sparse)
    found = dict(zip(out.indices.tolist(), out.values.tolist(), strict=True))
    assert found == {7: 1.0, rows - 1: 2.0, 3: 3.0}
    like = s if pair.takes_any_order(rows) else s.sorted()
    read, values = pair.decode_rows(wire[None], like, context())
    assert torch.equal(read[0], like.indices) and torch.equal(values[0], like.values)
    if like is s:
        twice = replace(s, indices=torch.tensor([7, PADDING, 7, 3, PADDING]))
        with pytest.raises(WireFormatError, match="distinct"):
            pair.decode(pair.encode(twice, context()), context())


def test_resealing_the_truth_changes_nothing() -> None:
    wire = small(PAIRS["raw+raw"])
    assert torch.equal(resealed(wire.numpy().tobytes()), wire)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("numel", [2**20, 2**40, 2**62])
def test_dense_headers_cannot_ask_for_memory(name: str, numel: int) -> None:
    """A few bytes that claim to be a dense tensor of exabytes."""
    pair = PAIRS[name]
    message = unpack(pair.encode(torch.ones(16), context()))
    header = replace(message.header, numel=numel, count=numel)
    wire = pack(header, address_of("t", 0), message.index_part, message.value_part)
    with pytest.raises(WireFormatError):
        pair.decode(wire, context())


def test_qsgd_bucket_cannot_ask_for_memory() -> None:
    codec = VALUES["qsgd"]
    part = codec.encode(torch.ones(3), 1).clone()
    part[4:8] = torch.tensor([0, 0, 0, 1])  # a bucket of 2^24 values, of which there are three
    with LargestResult() as largest:
        assert codec.decode(part, 3, torch.float32).shape == (3,)
    assert 0 < largest.numel < 100


def with_byte(part: Tensor, at: int, byte: int) -> Tensor:
    out = part.clone()
    out[at] = byte
    return out


@pytest.mark.parametrize(
    ("name", "at", "byte"),
    [
        ("sign", 7, 0xBF),  # the scale's sign bit
        ("sign", 8, 0b1000),  # a fourth sign
        ("tern", 7, 0xBF),
        ("tern", 8, 243),  # more than five digits can say
        ("tern", 8, 81),  # a fifth digit
        ("qsgd", 0, 1),  # bits
        ("qsgd", 0, 17),
        ("qsgd", 1, 2),  # norm
        ("qsgd", 2, 1),  # must be zero
        ("qsgd", 11, 0xBF),  # the norm's sign bit
        ("qsgd", 12, 255),  # the code above the highest level
        ("qsgd-2", 12, 1 << 6),  # a fourth code
    ],
)
def test_value_parts_that_no_encoder_makes(name: str, at: int, byte: int) -> None:
    codec = VALUES[name]
    part = codec.encode(torch.ones(3), 1)
    assert codec.decode(part, 3, torch.float32).shape == (3,)
    with pytest.raises(WireFormatError):
        codec.decode(with_byte(part, at, byte), 3, torch.float32)


@pytest.mark.parametrize("name", ["raw"])  # the others: tests/codec/index
@pytest.mark.parametrize("rows", [50, 2**31 + 50])
def test_the_first_index_out_of_range_is_refused(name: str, rows: int) -> None:
    codec = pieces("index")[name]()
    part = codec.encode(torch.tensor([3, rows - 1]), rows, True)
    assert codec.decode(part, 2, rows).tolist() == [3, rows - 1]
    with pytest.raises(WireFormatError, match=r"\["):
        codec.decode(part, 2, rows - 1)


def test_order_that_was_promised_is_checked() -> None:
    pair = PAIRS["raw+raw"]
    for indices in ([3, 1, 2], [1, 1, 2]):
        wire = pair.encode(Sparse(torch.tensor(indices), torch.ones(3), 5, ordered=True), context())
        with pytest.raises(WireFormatError, match="ascending"):
            pair.decode(wire, context())


@pytest.mark.parametrize(
    "wire",
    [
        torch.zeros(64),
        torch.zeros((8, 8), dtype=torch.uint8),
        torch.zeros(64, dtype=torch.int8),
        torch.zeros(0, dtype=torch.uint8),
    ],
)
def test_other_tensors_are_refused(wire: Tensor) -> None:
    with pytest.raises(WireFormatError):
        PAIRS["raw+raw"].decode(wire, context())


def test_the_sender_is_told_what_cannot_travel() -> None:
    pair = Pair(RawIndex(), RawValue())
    with pytest.raises(RecipeError, match="float16"):
        pair.encode(torch.ones(3, dtype=torch.float16), context())
    with pytest.raises(RecipeError, match="3 indices"):
        pair.encode(Sparse(torch.arange(3), torch.ones(2), 5), context())
    with pytest.raises(WireFormatError, match="count"):
        pair.encode(Sparse(torch.arange(3), torch.ones(3), 2), context())
    with pytest.raises(WireFormatError, match="width"):
        pair.encode(Sparse(torch.arange(3), torch.ones(3, 4), 21), context())


def test_unpack_returns_views() -> None:
    wire = small(PAIRS["raw+raw"])
    message = unpack(wire)
    base = wire.untyped_storage().data_ptr()
    assert message.index_part.untyped_storage().data_ptr() == base
    assert message.value_part.untyped_storage().data_ptr() == base
    assert message.index_part.storage_offset() % 8 == message.value_part.storage_offset() % 8 == 0
    assert message.header == Header(index_id=1, value_id=1, dtype=torch.float32, numel=40, count=11)
