"""Piecewise polynomials: Numba and torch alike, and the least squares that they should be."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.implementations import HAS_GPU
from thinwire.kernels.poly_fit import evaluate, numba, project, reference, split


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
    there = lengths[lengths > 0]
    assert torch.equal(there, lengths[: there.numel()])
    assert lengths.numel() == pieces
    assert int(there.min()) >= min(count, degree + 1)
    coefficients = reference.project(curve, lengths, degree)
    assert torch.equal(numba.project(curve, lengths, degree), coefficients)
    fitted = reference.evaluate(coefficients, lengths, count)
    assert torch.equal(numba.evaluate(coefficients, lengths, count), fitted)
    if degree >= int(lengths.max()) - 1:
        torch.testing.assert_close(fitted, curve)


@pytest.mark.parametrize("count", [2, 6, 50, 5000])
def test_it_is_the_least_squares_fit(count: int) -> None:
    curve = torch.rand(count, generator=torch.Generator().manual_seed(1)).double().sort().values
    lengths, t = torch.tensor([count]), np.linspace(-1, 1, count)
    degree = min(5, count - 1)
    basis = np.polynomial.legendre.legvander(t, degree)
    best = basis @ np.linalg.lstsq(basis, curve.numpy(), rcond=None)[0]
    fitted = numba.evaluate(project(curve, lengths, 5), lengths, count)
    np.testing.assert_allclose(fitted.numpy(), best, atol=1e-12)


def test_a_corner_is_where_the_chord_is_farthest() -> None:
    bend = torch.cat((torch.zeros(30), torch.arange(1, 21))).double()
    assert numba.split(bend, 2, 6).tolist() == [29, 21]
    assert numba.split(torch.arange(50).double(), 2, 6).tolist() == [50, 0], (
        "a line is its own chord"
    )


@pytest.mark.parametrize("pieces", [1, 8, 20])
def test_sums_in_a_gpu_s_order(pieces: int) -> None:
    draw = torch.Generator().manual_seed(pieces)
    curve = torch.rand(9000, generator=draw, dtype=torch.float64).sort().values
    lengths = reference.split(curve**3, pieces, 6)
    in_order = reference._sums(curve, lengths)
    torch.testing.assert_close(reference.sums_by_mask(curve, lengths), in_order, rtol=1e-13, atol=0)


@pytest.mark.skipif(not HAS_GPU, reason="there is no GPU")
@pytest.mark.parametrize("count", [1, 2, 7, 300, 70_001])
@pytest.mark.parametrize("pieces", [1, 8, 20])
def test_a_gpu_cuts_and_draws_the_same_without_the_host(count: int, pieces: int) -> None:
    draw = torch.Generator().manual_seed(count)
    curve = torch.rand(count, generator=draw, dtype=torch.float64).sort().values ** 3
    lengths = numba.split(curve, pieces, 6)
    coefficients = numba.project(curve, lengths, 5)
    there = [x.cuda() for x in (curve, lengths, coefficients)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        cut = split(there[0], pieces, 6)
        fitted = project(there[0], there[1], 5)
        again = project(there[0], there[1], 5)
        drawn = evaluate(there[2], there[1], count)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(cut.cpu(), lengths)
    assert torch.equal(drawn.cpu(), numba.evaluate(coefficients, lengths, count))
    assert torch.equal(fitted, again)
    torch.testing.assert_close(fitted.cpu(), coefficients, rtol=1e-9, atol=1e-12)
