"""Piecewise polynomials: Numba and torch alike, and the least squares that they should be."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thinwire.kernels.poly_fit import numba, project, reference


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 300),
    seed=st.integers(0, 2**32),
    pieces=st.integers(1, 9),
    degree=st.integers(0, 7),
    ties=st.booleans(),
)
def test_numba_is_the_reference(
    count: int, seed: int, pieces: int, degree: int, ties: bool
) -> None:
    draw = torch.Generator().manual_seed(seed)
    curve = torch.randn(count, generator=draw, dtype=torch.float64).sort().values
    if ties:
        curve = curve.round()
    lengths = reference.split(curve, pieces, degree + 1)
    assert torch.equal(numba.split(curve, pieces, degree + 1), lengths)
    assert int(lengths.sum()) == count
    assert 1 <= lengths.numel() <= pieces
    assert int(lengths.min()) >= min(count, degree + 1)
    coefficients = reference.project(curve, lengths, degree)
    assert torch.equal(numba.project(curve, lengths, degree), coefficients)
    fitted = reference.evaluate(coefficients, lengths)
    assert torch.equal(numba.evaluate(coefficients, lengths), fitted)
    if degree >= int(lengths.max()) - 1:
        torch.testing.assert_close(fitted, curve)


@pytest.mark.parametrize("count", [2, 6, 50, 5000])
def test_it_is_the_least_squares_fit(count: int) -> None:
    curve = torch.rand(count, generator=torch.Generator().manual_seed(1)).double().sort().values
    lengths, t = torch.tensor([count]), np.linspace(-1, 1, count)
    degree = min(5, count - 1)
    basis = np.polynomial.legendre.legvander(t, degree)
    best = basis @ np.linalg.lstsq(basis, curve.numpy(), rcond=None)[0]
    fitted = numba.evaluate(project(curve, lengths, 5), lengths)
    np.testing.assert_allclose(fitted.numpy(), best, atol=1e-12)


def test_a_corner_is_where_the_chord_is_farthest() -> None:
    bend = torch.cat((torch.zeros(30), torch.arange(1, 21))).double()
    assert numba.split(bend, 2, 6).tolist() == [29, 21]
    assert numba.split(torch.arange(50).double(), 8, 6).tolist() == [50], "a line is its own chord"
