"""Sorting with ranks: Numba orders as torch's stable sort does, bit for bit."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thinwire.kernels.sort_ranks import numba, reference, sort_ranks

ODD = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1.0, -1.0, 3.4e38, -3.4e38]


@settings(max_examples=150, deadline=None)
@given(
    count=st.integers(0, 400),
    seed=st.integers(0, 2**32),
    odd=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_numba_is_the_reference(count: int, seed: int, odd: bool, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, generator=draw, dtype=dtype)
    if odd:
        picks = torch.randint(len(ODD), (count,), generator=draw)
        x[::2] = torch.tensor(ODD, dtype=dtype)[picks][::2]
        x[picks == 4] *= -1  # NaN of either sign
    ascending, ranks = reference.sort_ranks(x)
    assert ranks.dtype == torch.int32
    for other in (numba.sort_ranks(x), sort_ranks(x)):
        assert torch.equal(other[0].view(torch.uint8), ascending.view(torch.uint8))
        assert torch.equal(other[1], ranks)
    assert torch.equal(ascending[ranks.long()].view(torch.uint8), x.view(torch.uint8))


def test_values_that_share_digits() -> None:
    """Passes over a digit that all have are skipped."""
    x = torch.tensor([3.0, 2.0, 3.0, 2.0, 2.0])
    assert numba.sort_ranks(x)[1].tolist() == [3, 0, 4, 1, 2]
    assert numba.sort_ranks(torch.full((7,), 5.0))[1].tolist() == list(range(7))
