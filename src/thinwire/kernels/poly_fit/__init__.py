"""Polynomials through the pieces of a curve that is given at evenly spaced points.

Piece of m points, at t = -1 … 1: the monic polynomials that are orthogonal on just these points
(Gram's) follow from P_0 = 1, P_1 = t, P_{k+1} = t·P_k - b_k·P_{k-1} with

    b_k = k²·(m² - k²) / ((m - 1)²·(4k² - 1)),   ‖P_k‖² = m·b_1·…·b_k

so that the least-squares coefficient of P_k is Σ y·P_k / ‖P_k‖²: no system to solve, and nothing
that could be ill-conditioned. A piece of m points has at most m polynomials; the coefficients of
the others are zero. All is float64, and the bits of pieces and of curves are the same everywhere.
Those of coefficients are the same on every CPU, where sums run from the first point to the last; a
GPU adds in an order of its own, always the same, and may differ in the last of them.

Nothing here makes the host wait for a GPU.
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.poly_fit import reference


def split(curve: Tensor, pieces: int, least: int) -> Tensor:
    """The lengths of `pieces` pieces of the 1-D float64 `curve`, of `least` points or more.

    One piece at first; again and again the piece that departs most from the chord between its ends
    is cut at the first point that is farthest from it, which becomes the first of the right piece.
    A piece whose halves would be shorter than `least` stays whole. Where there are fewer pieces,
    the last lengths are 0.
    """
    return implementation(reference.split, curve.device)(curve, pieces, least)


def project(curve: Tensor, lengths: Tensor, degree: int) -> Tensor:
    """The float64 coefficients, one row of degree + 1 for each piece."""
    return implementation(reference.project, curve.device)(curve, lengths, degree)


def evaluate(coefficients: Tensor, lengths: Tensor, count: int) -> Tensor:
    """The float64 curve of all pieces, one after another: `count` points, the lengths' sum."""
    return implementation(reference.evaluate, coefficients.device)(coefficients, lengths, count)
