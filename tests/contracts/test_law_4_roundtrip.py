"""Law 4, round trip: lossless pairs return what they got, lossy ones stay within their bound.

Covers codec/pair.py, codec/parts.py, codec/value/half.py, codec/value/raw.py,
codec/value/three_lc.py.
"""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor

from support.codec.cases import PAIRS, bits_of, context, random_sparse, random_values, selections
from thinwire.codec.container import HEADER_BYTES
from thinwire.types import Codec, Selection, Sparse

LAWFUL = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def values_of(s: Selection) -> Tensor:
    return s.values if isinstance(s, Sparse) else s


def assert_same_form(out: Selection, s: Selection) -> None:
    assert type(out) is type(s)
    if isinstance(s, Sparse):
        assert isinstance(out, Sparse)
        assert torch.equal(out.indices, s.indices)
        assert out.indices.dtype == torch.int64
        assert (out.numel, out.ordered, out.width) == (s.numel, s.ordered, s.width)
    assert values_of(out).shape == values_of(s).shape
    assert values_of(out).dtype == values_of(s).dtype


@pytest.mark.parametrize("name", PAIRS)
@LAWFUL
@given(s=selections())
def test_round_trip(name: str, s: Selection) -> None:
    pair = PAIRS[name]
    before = bits_of(values_of(s)).clone()
    wire = pair.encode(s, context())
    assert wire.dtype == torch.uint8
    assert wire.dim() == 1
    assert wire.numel() % 8 == 0
    out = pair.decode(wire, context())
    assert_same_form(out, s)
    if pair.value.lossless:
        assert torch.equal(bits_of(values_of(out)), before)
    else:
        error = (values_of(out).double() - values_of(s).double()).abs().reshape(-1)
        bound = pair.value.error_bound(values_of(s).reshape(-1))
        assert torch.isfinite(values_of(out)).all()
        assert (error <= bound).all(), (error - bound).max()
    assert torch.equal(bits_of(values_of(s)), before), "encode changed its input"


@pytest.mark.parametrize("name", PAIRS)
def test_same_input_same_bytes(name: str) -> None:
    s = random_sparse(3000, 1100)
    pair = PAIRS[name]
    threads = torch.get_num_threads()
    first = pair.encode(s, context(step=3))
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        assert torch.equal(first, pair.encode(s, context(step=3)))
    finally:
        torch.set_num_threads(threads)


def test_scales_do_not_depend_on_threads() -> None:
    """Torch adds up large tensors in an order that depends on the number of threads."""
    x = random_values(1 << 19, torch.float32, seed=1)
    threads = torch.get_num_threads()
    wires = {}
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            wires[n] = {name: p.encode(x, context()) for name, p in PAIRS.items()}
    finally:
        torch.set_num_threads(threads)
    for name in PAIRS:
        assert torch.equal(wires[1][name], wires[2][name]), name
        assert torch.equal(wires[1][name], wires[3][name]), name


@pytest.mark.parametrize("name", PAIRS)
def test_stochastic_rounding_is_each_rank_and_step_s_own(name: str) -> None:
    pair = PAIRS[name]
    x = random_values(2000, torch.float32, seed=4)
    parts = pair.encode(x, context())[HEADER_BYTES:]  # the header names the step
    stochastic = not pair.value.lossless and pair.value.unbiased
    for other in (context(rank=1), context(step=1)):
        assert torch.equal(parts, pair.encode(x, other)[HEADER_BYTES:]) is not stochastic


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", PAIRS)
def test_non_finite_values_stay_visible(name: str, bad: float) -> None:
    """An overflow on one rank must reach the others, or they would not skip the step alike."""
    x = random_values(50, torch.float32, seed=2)
    x[17] = bad
    out = PAIRS[name].decode(PAIRS[name].encode(x, context()), context())
    assert isinstance(out, Tensor)
    assert not torch.isfinite(out[17])


@pytest.mark.parametrize("name", PAIRS)
def test_non_contiguous_and_grad(name: str) -> None:
    grid = random_values(400, torch.float32, seed=3).view(20, 20)
    columns = Sparse(torch.arange(0, 40, 2)[::2], grid.t()[:10, :4].requires_grad_(), 160)
    plain = Sparse(columns.indices.clone(), columns.values.detach().clone().contiguous(), 160)
    pair = PAIRS[name]
    assert torch.equal(pair.encode(columns, context()), pair.encode(plain, context()))


@pytest.mark.parametrize("name", PAIRS)
def test_wire_inside_a_larger_buffer(name: str) -> None:
    """Collectives receive many payloads into one buffer, at any offset."""
    s = random_sparse(100, 33, torch.float64)
    pair = PAIRS[name]
    wire = pair.encode(s, context())
    expected = pair.decode(wire, context())
    assert isinstance(expected, Sparse)
    for offset in range(9):
        buffer = torch.full((offset + wire.numel() + 5,), 255, dtype=torch.uint8)
        buffer[offset : offset + wire.numel()] = wire
        out = pair.decode(buffer[offset : offset + wire.numel()], context())
        assert isinstance(out, Sparse)
        assert torch.equal(out.indices, expected.indices)
        assert torch.equal(bits_of(out.values), bits_of(expected.values))


def test_rows_past_int32() -> None:
    rows = 2**31 + 8
    s = Sparse(torch.tensor([0, 2**31 - 1, 2**31 + 7]), torch.ones(3), rows)
    for name, pair in PAIRS.items():
        if name == "bitmap+raw":  # which takes a bit per row
            continue
        out = pair.decode(pair.encode(s, context()), context())
        assert isinstance(out, Sparse)
        assert torch.equal(out.indices, s.indices), name
        assert out.numel == rows


def test_raw_views_the_payload() -> None:
    """Nothing is copied on the way in that need not be."""
    pair = PAIRS["raw+raw"]
    wire = pair.encode(random_values(64, torch.float32, 0), context())
    out = pair.decode(wire, context())
    assert isinstance(out, Tensor)
    assert out.untyped_storage().data_ptr() == wire.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", PAIRS)
def test_pair_is_a_codec_of_plain_settings(name: str) -> None:
    pair = PAIRS[name]
    assert isinstance(pair, Codec)
    assert pair.kind == "bytes"
    assert hash(pair) == hash(type(pair)(pair.index, pair.value))
