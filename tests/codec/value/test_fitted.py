"""Curves through sorted values: ranks, signs, and how good the fits are.

Covers codec/value/fit_dexp.py, codec/value/fit_poly.py, codec/value/ranks.py.
"""

import math
import struct
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.codec.cases import random_values
from support.codec.value_helpers import decoded, relative_error, with_bytes
from thinwire.codec.value import FitDexpValue, FitPolyValue
from thinwire.codec.value.fit_poly import papers_pieces
from thinwire.codec.value.ranks import pack_ranks, rank_bits, ranks_bytes, unpack_ranks
from thinwire.errors import RecipeError, WireFormatError
from thinwire.kernels import use

Fit = FitPolyValue | FitDexpValue
FITS: dict[str, Fit] = {"fit_poly": FitPolyValue(), "fit_dexp": FitDexpValue()}


def normal(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 255, 256, 257, 65_536, 65_537, 70_001])
def test_ranks_take_the_papers_bits(count: int) -> None:
    ranks = torch.randperm(count, generator=torch.Generator().manual_seed(1)).int()
    packed = pack_ranks(ranks)
    assert rank_bits(count) == (0 if count < 2 else len(f"{count - 1:b}"))
    assert packed.numel() == ranks_bytes(count) <= rank_bits(count) * count / 8 + 2
    assert torch.equal(unpack_ranks(packed, count), ranks)


def test_ranks_must_be_a_permutation() -> None:
    with pytest.raises(WireFormatError, match="twice"):
        unpack_ranks(pack_ranks(torch.tensor([0, 1, 1, 2], dtype=torch.int32)), 4)
    with pytest.raises(WireFormatError, match="below 3"):
        unpack_ranks(pack_ranks(torch.tensor([0, 1, 3], dtype=torch.int32)), 3)


@pytest.mark.parametrize("name", FITS)
def test_a_few_numbers_and_the_ranks(name: str) -> None:
    count = 40_000
    part = FITS[name].encode(normal(count), 0)
    spare = part.numel() - 16 - count * rank_bits(count) // 8
    assert spare == {"fit_poly": 2 * (4 + 8 * 4 + 8 * 6 * 4), "fit_dexp": 2 * 32}[name]


@pytest.mark.parametrize("name", FITS)
@settings(max_examples=25, deadline=None)
@given(count=st.integers(1, 200), seed=st.integers(0, 2**32), wide=st.booleans())
def test_signs_and_the_largest_are_never_passed(
    name: str, count: int, seed: int, wide: bool
) -> None:
    x = random_values(count, torch.float32, seed, extreme=True) if wide else normal(count, seed)
    out = decoded(FITS[name], x)
    assert (out * x.sign() >= 0).all()
    assert out.abs().max() <= x.abs().max()


def test_a_polynomial_of_degree_5_is_found() -> None:
    t = torch.linspace(0, 1, 400, dtype=torch.float64)
    curve = 1 + t - 2 * t**2 + 3 * t**3 + 5 * t**4 - t**5  # ascending on [0, 1]
    assert (curve.diff() > 0).all()
    x = torch.cat((curve, -2 * curve))[torch.randperm(800)]
    for pieces in (1, 8):
        torch.testing.assert_close(decoded(FitPolyValue(pieces=pieces), x), x, rtol=1e-6, atol=1e-6)


def test_pieces_by_the_papers_rule() -> None:
    """⌈2√M⌉: of the values as they are, so that larger ones take more pieces."""
    x = torch.tensor([1.0, 1.5, 3.0, 4.0, 5.0, 9.0, 9.5, 9.9, 11.0, 15.0, 16.0, 17.0, 18.0, 21.25])
    assert papers_pieces(x.double() / 21.25, 21.25) == math.ceil(2 * math.sqrt(3.25 - 0.5))
    few = FitPolyValue(degree=1, pieces=None).encode(normal(5000) / 1000, 0)
    many = FitPolyValue(degree=1, pieces=None).encode(normal(5000) * 1000, 0)
    assert few[16 + 1] == 1 < many[16 + 1]  # behind the settings: degree, pieces
    torch.testing.assert_close(
        decoded(FitPolyValue(pieces=None), x), decoded(FitPolyValue(pieces=4), x)
    )


def test_two_exponentials_are_found() -> None:
    i = torch.arange(2000, dtype=torch.float64) / 1999
    curve = 3 * torch.exp(-40 * i) + torch.exp(-1.5 * i)
    assert relative_error(FitDexpValue(), curve[torch.randperm(2000)]) < 1e-3


def test_more_pieces_fit_better() -> None:
    x = normal(20_000)
    errors = [relative_error(FitPolyValue(pieces=pieces), x) for pieces in (1, 2, 4, 8)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.005 < errors[0] < 0.1
    assert relative_error(FitDexpValue(), x) < 0.1


@pytest.mark.parametrize("name", FITS)
def test_the_bound_is_the_fit_s_own(name: str) -> None:
    """It holds, and something comes close to it on either sign."""
    x = normal(3000, seed=5)
    error, bound = (decoded(FITS[name], x) - x).abs().double(), FITS[name].error_bound(x)
    for side in (x < 0, x >= 0):
        assert bool((error[side] <= bound[side]).all())
        assert float((error[side] / bound[side]).max()) > 0.99


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_nothing_finite_hides_what_is_not(name: str, bad: float) -> None:
    x = normal(50)
    x[7] = bad
    assert not decoded(FITS[name], x).isfinite().any()


@pytest.mark.parametrize("name", FITS)
def test_the_reference_kernels_write_and_read_the_same(name: str) -> None:
    x = random_values(500, torch.float32, 8)
    part = FITS[name].encode(x, 0)
    out = FITS[name].decode(part, 500, torch.float32)
    with use("reference"):
        assert torch.equal(FITS[name].encode(x, 0), part)
        assert torch.equal(FITS[name].decode(part, 500, torch.float32), out)


@pytest.mark.parametrize(
    ("name", "at", "data"),
    [
        ("fit_poly", 7, [0xBF]),  # the scale's sign
        ("fit_poly", 8, [1]),  # a negative value, and no formula for it
        ("fit_poly", 16, [16]),  # degree
        ("fit_poly", 17, [0]),  # pieces
        ("fit_poly", 18, [1]),  # spare
        ("fit_poly", 20, [4]),  # a piece longer than the values
        ("fit_poly", 20, [0xFF] * 4),
        ("fit_poly", 48, [0]),  # the same rank three times
        ("fit_dexp", 24, list(struct.pack("<d", 0.0))),  # ratio
        ("fit_dexp", 24, list(struct.pack("<d", -1.0))),
        ("fit_dexp", 16, list(struct.pack("<d", float("inf")))),
    ],
)
def test_parts_that_no_encoder_makes(name: str, at: int, data: list[int]) -> None:
    codec = FITS[name]
    part = codec.encode(torch.tensor([3.0, 1.0, 2.0]), 0)
    assert codec.decode(part, 3, torch.float32).numel() == 3
    with pytest.raises(WireFormatError):
        codec.decode(with_bytes(part, at, *data), 3, torch.float32)


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("values", [[-3.0, 1.0, 2.0], [-3.0, -2.0, -1.0]])
def test_negatives_beyond_the_count_ask_for_no_memory(name: str, values: list[float]) -> None:
    """2^32 - 1 negative values where there are three, and a curve of so many points."""
    part = FITS[name].encode(torch.tensor(values), 0)
    lie = with_bytes(part, 8, 0xFF, 0xFF, 0xFF, 0xFF)
    with pytest.raises(WireFormatError, match="no such settings"):
        FITS[name].decode(lie, 3, torch.float32)


@pytest.mark.parametrize("setting", [{"degree": -1}, {"degree": 16}, {"pieces": 0}])
def test_settings_are_checked(setting: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=next(iter(setting))):
        FitPolyValue(**setting)
