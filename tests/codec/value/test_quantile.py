"""Quantile buckets: equally full, of one sign, their means in a table."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.codec.cases import random_values
from support.codec.value_helpers import decoded, relative_error, with_bytes
from thinwire.codec.value import QuantileValue
from thinwire.errors import RecipeError, WireFormatError


@settings(max_examples=80, deadline=None)
@given(
    count=st.integers(1, 300),
    bits=st.integers(2, 7),
    seed=st.integers(0, 2**32),
    negative=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    zero=st.sampled_from([0.0, 0.3, 1.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_signs_and_zeros_come_back(
    count: int, bits: int, seed: int, negative: float, zero: float, dtype: torch.dtype
) -> None:
    draw = torch.Generator().manual_seed(seed)
    x = random_values(count, dtype, seed, extreme=True).abs()
    x[torch.rand(count, generator=draw) < negative] *= -1
    x[torch.rand(count, generator=draw) < zero] = 0
    out = decoded(QuantileValue(bits), x)
    assert torch.equal(out.sign(), x.sign())
    assert out.unique().numel() <= 1 << bits


def test_buckets_are_equally_full_and_hold_their_means() -> None:
    x = torch.randn(6400, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    out = decoded(QuantileValue(), x)
    means, members = out.unique(return_counts=True)
    assert means.numel() == 64
    assert int(members.max()) - int(members.min()) <= 4  # the two signs differ a little
    for mean in means:
        torch.testing.assert_close(x[out == mean].mean(), mean)
    assert relative_error(QuantileValue(), x) < 0.07


def test_few_values_are_exact() -> None:
    x = torch.tensor([3.0, -1.0, 2.0, 0.0, -7.0, 5.5])
    assert torch.equal(decoded(QuantileValue(), x), x)
    assert torch.equal(QuantileValue().error_bound(x), torch.zeros(6, dtype=torch.float64))


def test_means_of_large_values_do_not_overflow() -> None:
    x = torch.full((1000,), 1.7e308, dtype=torch.float64)
    assert torch.equal(decoded(QuantileValue(2), x), x)


@pytest.mark.parametrize(("at", "byte"), [(0, 1), (0, 17), (1, 1), (7, 9), (20, 3)])
def test_parts_that_no_encoder_makes(at: int, byte: int) -> None:
    codec = QuantileValue(2)
    part = codec.encode(torch.tensor([1.0, 2.0, 4.0]), 0)
    assert part.numel() == 21
    with pytest.raises(WireFormatError):
        codec.decode(with_bytes(part, at, byte), 3, torch.float32)


@pytest.mark.parametrize("bits", [1, 17])
def test_settings_are_checked(bits: int) -> None:
    with pytest.raises(RecipeError, match=f"bits={bits}"):
        QuantileValue(bits)
