"""Orthonormal rows of the same span, whatever the rows were; columns here, as a reader thinks."""

import pytest
import torch

from thinwire.collective._orthonormal import orthonormal
from thinwire.types import Matrices


def columns(rows, condition, rank=4, seed=0):
    """Singular values that fall from 1 to 1 / `condition`."""
    draw = torch.Generator().manual_seed(seed)
    left = torch.linalg.qr(torch.randn(rows, rank, generator=draw, dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(rank, rank, generator=draw, dtype=torch.float64)).Q
    values = torch.logspace(0, -torch.tensor(condition).log10(), rank, dtype=torch.float64)
    return ((left * values) @ right.T).float()


def made(*matrices):
    """The same matrices, made orthonormal in one row."""
    runs, start = [], 0
    for matrix in matrices:
        runs.append(Matrices(1, *matrix.T.shape, start, matrix.numel()))
        start += matrix.numel()
    row = orthonormal(torch.cat([matrix.T.reshape(-1) for matrix in matrices]), runs)
    return [run.of(row)[0].T for run in runs]


def assert_orthonormal(q, within=1e-5):
    torch.testing.assert_close(q.T @ q, torch.eye(q.shape[1]), rtol=0, atol=within)


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4])
@pytest.mark.parametrize("rows", [9, 100, 5000])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_span_stays_and_nothing_overflows(rows, condition, scale):
    p = columns(rows, condition) * scale
    (q,) = made(p)
    raised = 2 * 4 * (rows + 4) * 2.0**-52  # the diagonal, which makes columns shorter
    assert_orthonormal(q, 1e-5 + 2 * raised * condition**2)
    left = p - q @ (q.T @ p)
    assert left.norm() <= 1e-5 * p.norm()


def test_several_shapes_at_once_are_as_each_alone():
    several = [columns(rows, 10.0, seed=rows) for rows in (20, 50, 300)]
    for q, p in zip(made(*several), several, strict=True):
        assert_orthonormal(q)
        torch.testing.assert_close(q, made(p)[0], rtol=0, atol=1e-6)


def test_columns_that_say_nothing_new_are_zero():
    p = columns(200, 10.0)
    dependent = torch.stack((p[:, 0], 2 * p[:, 0], p[:, 1], p[:, 0] - p[:, 1]), 1)
    (q,) = made(dependent)
    assert not q[:, [1, 3]].any()
    assert_orthonormal(q[:, [0, 2]])


def test_zeros_stay_zeros_beside_others():
    zeros, p = torch.zeros(30, 4), columns(200, 10.0)
    with_a_gap = p.clone()
    with_a_gap[:, 2] = 0
    first, second, third = made(zeros, with_a_gap, p)
    assert not first.any()
    assert not second[:, 2].any()
    assert_orthonormal(second[:, [0, 1, 3]])
    assert_orthonormal(third)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_becomes_zero_and_touches_no_other(value):
    bad = columns(30, 2.0)
    bad[7, 1] = value
    first, second = made(bad, columns(200, 10.0))
    assert first.isfinite().all()
    assert_orthonormal(second)
