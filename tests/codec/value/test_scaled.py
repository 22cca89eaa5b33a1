"""fp8 and chunked: a scale for each chunk.

Covers codec/value/chunked.py, codec/value/chunks.py, codec/value/fp8.py.
"""

import math
from typing import Any

import pytest
import torch

from support.codec.cases import random_values
from support.codec.value_helpers import decoded, with_bytes
from thinwire.codec.value import ChunkedValue, Fp8Value
from thinwire.codec.value.fp8 import Format
from thinwire.errors import RecipeError, WireFormatError

LARGEST: dict[Format, float] = {"e4m3": 448.0, "e5m2": 57344.0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("format", LARGEST)
def test_fp8_gives_back_its_own_numbers(format: Format, dtype: torch.dtype) -> None:
    """All finite codes, under a scale that is the format's largest: exact both ways."""
    form = torch.float8_e4m3fn if format == "e4m3" else torch.float8_e5m2
    numbers = torch.arange(256).to(torch.uint8).view(form).to(dtype)
    numbers = numbers[numbers.isfinite()]
    assert numbers.max() == LARGEST[format]
    assert torch.equal(decoded(Fp8Value(format), numbers), numbers)
    assert torch.equal(decoded(Fp8Value(format), numbers / 1024), numbers / 1024)


def test_fp8_chunks_have_scales_of_their_own() -> None:
    x = torch.cat((torch.full((4,), 1e-30), torch.full((4,), 1e30)))
    torch.testing.assert_close(decoded(Fp8Value(chunk=4), x), x)
    assert (decoded(Fp8Value(chunk=8), x)[:4] == 0).all()


def test_fp8_keeps_significant_bits_over_its_range() -> None:
    x = 2.0 ** torch.linspace(-14, 0, 500)
    error = (decoded(Fp8Value("e4m3"), x) - x).abs() / x
    assert error.max() <= 2**-4 * 1.0001
    x = 2.0 ** torch.linspace(-29, 0, 500)
    error = (decoded(Fp8Value("e5m2"), x) - x).abs() / x
    assert 2**-4 < error.max() <= 2**-3 * 1.0001


@pytest.mark.parametrize(
    ("format", "codes"), [("e4m3", [0x7F, 0xFF]), ("e5m2", [0x7C, 0x7F, 0xFC])]
)
def test_fp8_refuses_codes_that_are_not_numbers(format: Format, codes: list[int]) -> None:
    codec = Fp8Value(format)
    part = codec.encode(torch.ones(3), 0)
    for code in codes:
        with pytest.raises(WireFormatError, match="finite"):
            codec.decode(with_bytes(part, 13, code), 3, torch.float32)


@pytest.mark.parametrize(
    ("codec", "bits"),
    [
        (Fp8Value(), 8 + 32 / 512),
        (Fp8Value("e5m2", chunk=1024), 8 + 32 / 1024),
        (ChunkedValue(), 8 + 32 / 512),
        (ChunkedValue(bits=2, chunk=256), 2 + 32 / 256),
    ],
)
def test_bits_a_value(codec: Fp8Value | ChunkedValue, bits: float) -> None:
    count = 5 * 1024
    assert codec.encode(random_values(count, torch.float32, 1), 1).numel() == 8 + bits * count / 8


def test_chunked_points_are_even_and_reach_the_largest() -> None:
    x = torch.tensor([-3.0, -1.0, 1.0, 3.0])
    for codec in (ChunkedValue(bits=2), ChunkedValue(bits=2, rounding="stochastic")):
        assert decoded(codec, x).tolist() == [-3, -1, 1, 3]
    top = torch.arange(-255, 256, 2) / 255
    torch.testing.assert_close(decoded(ChunkedValue(bits=8), top), top)


@pytest.mark.parametrize("content", ["normal", "heavy", "one", "tail"])
@pytest.mark.parametrize("bits", [2, 8])
def test_chunked_nearest_is_a_contraction(bits: int, content: str) -> None:
    """‖x - Q(x)‖ < ‖x‖, or feedback would pile up: the largest magnitude as scale breaks it."""
    x = torch.randn(1000, generator=torch.Generator().manual_seed(3))
    if content == "heavy":
        x = x**9
    elif content == "one":
        x *= 1e-3
        x[::512] = 1e3
    elif content == "tail":
        x = x[:513]  # the last chunk has one value
    codec = ChunkedValue(bits=bits)
    out = decoded(codec, x)
    for start in range(0, x.numel(), 512):
        chunk = slice(start, start + 512)
        assert (out - x)[chunk].norm() < x[chunk].norm()
    if content == "normal" and bits == 2:
        error = float((out - x).norm() / x.norm())
        assert abs(error - math.sqrt(0.1188)) < 0.02  # Max, 1960: even steps, four points
    if content == "tail":
        torch.testing.assert_close(out[-1], x[-1])


@pytest.mark.parametrize("bits", [2, 8])
def test_chunked_stochastic_is_unbiased_and_each_seed_s_own(bits: int) -> None:
    x = torch.randn(60, generator=torch.Generator().manual_seed(12))
    x[3] = 0.0
    codec = ChunkedValue(bits=bits, chunk=16, rounding="stochastic")
    draws = 2000
    samples = torch.stack([decoded(codec, x, seed) for seed in range(draws)]).double()
    step = codec.error_bound(x)
    assert ((samples.mean(0) - x).abs() <= 4 * step * math.sqrt(0.25 / draws) + 1e-5 * step).all()
    assert ((samples - x).abs() <= step).all()
    assert (samples.std(0) > 0).any()
    nearest = ChunkedValue(bits=bits, chunk=16)
    assert torch.equal(decoded(nearest, x, 1), decoded(nearest, x, 2))
    assert not nearest.unbiased
    assert codec.unbiased


def test_the_receiver_need_not_know_how_it_was_rounded() -> None:
    x = random_values(100, torch.float32, 3)
    part = ChunkedValue(bits=2, chunk=7, rounding="stochastic").encode(x, 5)
    expected = ChunkedValue(bits=2, chunk=7).decode(part, 100, torch.float32)
    assert torch.equal(ChunkedValue().decode(part, 100, torch.float32), expected)


@pytest.mark.parametrize("codec", [Fp8Value(chunk=10), ChunkedValue(chunk=10)])
def test_non_finite_values_spoil_their_own_chunk_only(codec: Fp8Value | ChunkedValue) -> None:
    x = torch.ones(30)
    x[12], x[17] = math.inf, math.nan
    out = decoded(codec, x)
    assert not out[10:20].isfinite().any()
    assert torch.equal(out[:10], x[:10])
    assert torch.equal(out[20:], x[20:])


@pytest.mark.parametrize("codec", [Fp8Value(), ChunkedValue(), ChunkedValue(bits=2)])
@pytest.mark.parametrize(("at", "byte"), [(0, 3), (1, 1), (2, 1), (11, 0xBF)])
def test_settings_that_no_encoder_makes(codec: Fp8Value | ChunkedValue, at: int, byte: int) -> None:
    part = codec.encode(torch.ones(3), 1)
    with pytest.raises(WireFormatError):
        codec.decode(with_bytes(part, at, byte), 3, torch.float32)
    with pytest.raises(WireFormatError):
        codec.decode(with_bytes(part, 4, 0, 0, 0, 0), 3, torch.float32)  # chunks of nothing


@pytest.mark.parametrize(
    ("piece", "setting"),
    [
        (Fp8Value, {"format": "e3m4"}),
        (Fp8Value, {"chunk": 0}),
        (ChunkedValue, {"bits": 4}),
        (ChunkedValue, {"chunk": 2**32}),
        (ChunkedValue, {"rounding": "up"}),
    ],
)
def test_settings_are_checked(piece: Any, setting: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=str(next(iter(setting.values())))):
        piece(**setting)
