"""What every index codec promises (`types/halves.py`), for every codec at once.

Covers codec/index/ans.py, codec/index/ascending.py, codec/index/bitmap.py, codec/index/chunk12.py,
codec/index/elias_fano.py, codec/index/huffman.py, codec/index/packed.py, codec/index/pco.py,
codec/index/raw.py, codec/index/regional.py, codec/index/rice.py, codec/index/rle.py,
codec/index/varint.py, codec/index/zstd.py.
"""

import math
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from support.codec.cases import INDICES as CODECS
from support.codec.cases import LEFT_OUT, each
from support.codec.index_cases import (
    ASCENDING,
    EVERY_NAME,
    EVERY_ROW,
    FOREIGN,
    Case,
    cases,
    clustered,
    uniform,
)
from thinwire import kernels
from thinwire.cookbook.registry import pieces
from thinwire.errors import RecipeError, WireFormatError

# One part for each set.
CANONICAL = ["raw", "regional", "chunk12", "elias_fano", "bitmap", "varint", "rle"]
every_codec = pytest.mark.parametrize("name", each(EVERY_NAME))
SMALL = Case(torch.tensor([0, 3, 4, 5, 17, 64, 65, 99]), 100)


def few_rows(name: str, case: Case) -> bool:
    return name not in EVERY_ROW or case.rows <= 2**20


def assert_sound(out: Tensor, count: int, rows: int) -> None:
    assert out.shape == (count,)
    assert out.dtype == torch.int64
    if count:
        assert int(out.min()) >= 0
        assert int(out.max()) < rows


@every_codec
@settings(max_examples=120)
@given(case=cases())
def test_round_trip_in_every_implementation(name: str, case: Case) -> None:
    """The same bytes from torch and from Numba, and each reads them."""
    if not few_rows(name, case):
        return
    codec, count = CODECS[name], case.indices.numel()
    before = case.indices.clone()
    part = codec.encode(case.indices, case.rows, True)
    assert part.dtype == torch.uint8
    assert part.dim() == 1
    assert torch.equal(codec.decode(part, count, case.rows), before)
    with kernels.use("reference"):
        assert torch.equal(codec.encode(case.indices, case.rows, True), part)
        assert torch.equal(codec.decode(part, count, case.rows), before)
    assert torch.equal(case.indices, before)


@every_codec
@given(case=cases(), seed=st.integers(0, 2**32))
def test_any_order_comes_back(name: str, case: Case, seed: int) -> None:
    order = torch.randperm(case.indices.numel(), generator=torch.Generator().manual_seed(seed))
    codec, shuffled = CODECS[name], case.indices[order]
    part = codec.encode(shuffled, case.rows, False)
    assert torch.equal(codec.decode(part, shuffled.numel(), case.rows), shuffled)
    assert part.numel() <= 8 * shuffled.numel() + 1


@every_codec
def test_strided_indices(name: str) -> None:
    strided = torch.arange(0, 60)[::3]
    codec = CODECS[name]
    part = codec.encode(strided, 60, True)
    assert torch.equal(part, codec.encode(strided.clone(), 60, True))


# Bits an index on uniform indices at 1 %, where the entropy is 8.08: the most that is promised.
BITS_AT_ONE_PERCENT = {
    "raw": 32.0, "regional": 16.06, "chunk12": 12.4, "rice": 8.12, "elias_fano": 8.58,
    "bitmap": 100.01, "varint": 10.3, "rle": 18.2, "huffman": 8.2, "pco": 8.2, "zstd": 9.1,
    "ans": 8.12,
}  # fmt: skip


@every_codec
def test_bits_against_the_entropy(name: str) -> None:
    rows, count = 2_000_000, 20_000
    bits = 8 * CODECS[name].encode(uniform(rows, count), rows, True).numel() / count
    least = (math.lgamma(rows + 1) - math.lgamma(count + 1) - math.lgamma(rows - count + 1)) / (
        math.log(2) * count
    )
    assert 8.07 < least < 8.09
    assert least <= bits <= BITS_AT_ONE_PERCENT[name]


@given(case=cases())
def test_worst_cases_are_bounded(case: Case) -> None:
    """Whatever the distribution; a few words are for rounding up."""
    count, rows = case.indices.numel(), case.rows
    spread = math.log2(rows / count) if count else 0
    for name, bits in {"rice": 4.7 + spread, "elias_fano": 2 + spread}.items():
        assert 8 * CODECS[name].encode(case.indices, rows, True).numel() <= count * bits + 160
    regional = CODECS["regional"].encode(case.indices, rows, True).numel()
    assert regional <= min(2 * count + 4 * (-(-rows // 65536)), 8 * count + 8) + 1
    chunk12 = CODECS["chunk12"].encode(case.indices, rows, True).numel()
    assert chunk12 <= min(regional, 1.5 * (count + 1) + 2 * (-(-rows // 4096)) + 1)


def test_clusters_are_cheap_where_the_code_fits_them() -> None:
    indices, rows = clustered(10_000_000, 200, 500), 10_000_000
    here = [name for name in ASCENDING if name not in LEFT_OUT]
    bits = {n: 8 * CODECS[n].encode(indices, rows, True).numel() / len(indices) for n in here}
    assert bits["rle"] < 0.2
    assert bits["huffman"] < 1.2
    assert all(bits[name] < 0.1 for name in FOREIGN if name in here)
    assert bits["rice"] < 9


@every_codec
def test_every_truncation_and_extension_is_refused(name: str) -> None:
    codec, count, rows = CODECS[name], SMALL.indices.numel(), SMALL.rows
    part = codec.encode(SMALL.indices, rows, True)
    for length in range(part.numel()):
        with pytest.raises(WireFormatError):
            codec.decode(part[:length], count, rows)
    for extra in (1, 2, 7, 8, 64):
        for padded in (
            torch.cat((part, part.new_zeros(extra))),
            torch.cat((part[:-1], part.new_zeros(extra), part[-1:])),
        ):
            with pytest.raises(WireFormatError):
                codec.decode(padded, count, rows)


@every_codec
@pytest.mark.parametrize("implementation", ["numba", "reference"])
def test_every_flip_is_refused_or_means_what_it_says(
    name: str, implementation: kernels.Implementation
) -> None:
    """Without the checksum's shield. No two parts mean the same where there is one way to write."""
    codec, count, rows = CODECS[name], SMALL.indices.numel(), SMALL.rows
    part = codec.encode(SMALL.indices, rows, True)
    with kernels.use(implementation):
        for bit in range(8 * part.numel()):
            damaged = part.clone()
            damaged[bit // 8] ^= 1 << (bit % 8)
            try:
                out = codec.decode(damaged, count, rows)
            except WireFormatError:
                continue
            assert_sound(out, count, rows)
            if name not in FOREIGN:
                assert not torch.equal(out, SMALL.indices)
            if name in CANONICAL:
                ordered = bool((out[1:] > out[:-1]).all())
                assert not ordered or torch.equal(codec.encode(out, rows, True), damaged)


@every_codec
@settings(max_examples=150)
@given(
    case=cases(),
    seed=st.integers(0, 2**32),
    damage=st.integers(1, 30),
    lie=st.sampled_from([0, 0, 0, -1, 1, 50, 2**20, 2**40, 2**62]),
)
def test_nonsense_is_refused_or_sound(
    name: str, case: Case, seed: int, damage: int, lie: int
) -> None:
    """Damaged parts, and counts that are lies: never a crash, nor memory by a number's word."""
    if not few_rows(name, case):
        return
    codec, rows = CODECS[name], case.rows
    count = max(0, min(case.indices.numel() + lie, rows))
    part = codec.encode(case.indices, rows, True).clone()
    draw = torch.Generator().manual_seed(seed)
    if part.numel() and damage < 25:
        where = torch.randint(part.numel(), (damage,), generator=draw)
        part[where] = torch.randint(256, (damage,), generator=draw).to(torch.uint8)
        part[-1] &= 1
    outcomes: list[list[int] | None] = []
    for implementation in ("numba", "reference"):
        with kernels.use(implementation):
            try:
                out = codec.decode(part, count, rows)
                assert_sound(out, count, rows)
                outcomes.append(out.tolist())
            except WireFormatError:
                outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@every_codec
@settings(max_examples=150)
@given(
    data=st.binary(max_size=120),
    count=st.one_of(st.integers(0, 60), st.sampled_from([2**20, 2**40, 2**62])),
    rows=st.one_of(st.integers(0, 200), st.sampled_from([2**31, 2**40, 2**63 - 1])),
    form=st.sampled_from([b"", b"\0", b"\1", b"\0\0", b"\3\0", b"\x3e\0"]),
)
def test_random_parts(name: str, data: bytes, count: int, rows: int, form: bytes) -> None:
    bytes_ = bytearray(data + form)
    part = torch.frombuffer(bytes_, dtype=torch.uint8) if bytes_ else torch.empty(0).byte()
    try:
        out = CODECS[name].decode(part, count, rows)
    except WireFormatError:
        return
    assert_sound(out, count, rows)


@every_codec
def test_long_nonsense_takes_no_longer(name: str) -> None:
    draw = torch.Generator().manual_seed(4)
    for fill in (0, 255, None):
        part = torch.randint(256, (100_001,), generator=draw).to(torch.uint8)
        if fill is not None:
            part[:] = fill
        for tail in (0, 6):
            part[-2], part[-1] = tail, 0
            started = time.process_time()
            with pytest.raises(WireFormatError):
                CODECS[name].decode(part, 33_333, 2**24)
            assert time.process_time() - started < 2


@pytest.mark.parametrize("name", each(ASCENDING))
@pytest.mark.parametrize("indices", [[3, 1, 2], [1, 1, 2], [-1, 2, 3], [1, 2, 100], [0, 2**62, 5]])
def test_a_broken_promise_is_told(name: str, indices: list[int]) -> None:
    with pytest.raises(RecipeError, match="ascend"):
        CODECS[name].encode(torch.tensor(indices), 100, True)


@pytest.mark.parametrize("name", EVERY_ROW)
def test_absurd_rows_are_refused(name: str) -> None:
    with pytest.raises(RecipeError, match="every row"):
        CODECS[name].encode(torch.arange(3), 2**40, True)
    part = CODECS[name].encode(torch.arange(3), 100, True)
    with pytest.raises(WireFormatError, match="every row"):
        CODECS[name].decode(part, 3, 2**40)


def test_ids_are_frozen() -> None:
    assert {name: piece.id for name, piece in pieces("index").items()} == {
        "raw": 1, "regional": 2, "rice": 3, "elias_fano": 4, "bitmap": 5, "varint": 6, "rle": 7,
        "huffman": 8, "pco": 10, "zstd": 11, "ans": 12, "chunk12": 13, "bloom": 14,
    }  # fmt: skip


def test_a_run_cannot_ask_for_memory() -> None:
    """Nine bytes that say 2^40 ones, and a header that agrees."""
    part = torch.tensor([0, 128, 128, 128, 128, 128, 32, 0], dtype=torch.uint8)
    with pytest.raises(WireFormatError, match="more than"):
        CODECS["rle"].decode(part, 2**40, 2**40)
