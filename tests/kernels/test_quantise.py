"""Stochastic rounding: all implementations draw the same, and the draw is `hash_to_unit`'s."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.implementations import Case, cases
from thinwire.kernels.quantise import numba, quantise, reference
from thinwire.rng import hash_to_unit

SEEDS = st.integers(0, 2**63 - 1)


@settings(max_examples=100, deadline=None)
@given(
    count=st.integers(0, 300),
    seed=SEEDS,
    top=st.sampled_from([1.0, 3.0, 127.0, 32767.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_numba_is_the_reference(count: int, seed: int, top: float, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(seed)
    heights = torch.rand(count, generator=draw, dtype=dtype) * top
    heights[::5] = heights[::5].round()
    expected = reference.quantise(heights, seed)
    assert expected.dtype == torch.int32
    for out in (numba.quantise(heights, seed), quantise(heights, seed)):
        assert torch.equal(out, expected)
        assert out.dtype == torch.int32
    assert torch.equal(expected[::5], heights[::5].int())
    assert ((expected - heights).abs() < 1).all()


@pytest.mark.parametrize("case", cases("quantise"))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_height_goes_up_if_its_number_is_below_the_fraction(
    case: Case, dtype: torch.dtype
) -> None:
    seed = 2**63 - 25
    drawn = hash_to_unit(torch.arange(1500), seed)
    assert (case.run(quantise, drawn.to(dtype), seed) == 0).all()
    assert (case.run(quantise, drawn.to(dtype) + 2.0**-24, seed) == 1).all()


@pytest.mark.parametrize("case", cases("quantise"))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [0, 1, 3001])
def test_all_are_the_reference_on_much(case: Case, count: int, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(count)
    heights = torch.rand(count, generator=draw, dtype=dtype) * 32767
    steps = case.run(quantise, heights, 5)
    assert steps.dtype == torch.int32
    assert torch.equal(steps.cpu(), reference.quantise(heights, 5))
