"""Rows made orthonormal by Cholesky-QR: products and one small factorisation, nothing to ask."""

from collections.abc import Sequence

import torch
from torch import Tensor

from thinwire.types import Matrices

_NOTHING = 1e-200  # in place of a squared norm of zero: far below that of any float32
_NOISE = 100  # times the shift: what is left at least of a row that is no sum of others


def orthonormal(flat: Tensor, runs: Sequence[Matrices]) -> Tensor:
    """The matrices in `flat` with orthonormal rows of the same span, in the same places.

    Where a row is a sum of those before it, up to rounding, or zero, or not finite, zeros take its
    place.

    Cholesky-QR: P·Pᵀ = L·Lᵀ, and L⁻¹·P is orthonormal up to κ(P)² times the rounding error. In
    float64 that is nothing for what float32 can tell apart, and it costs little: P is thin.
    The diagonal is raised, relatively, by a bound for the rounding of P·Pᵀ: then L always exists
    (Fukaya et al., "Shifted Cholesky QR", SIAM J. Sci. Comput. 2020), and what is nearly a sum of
    other rows comes out a little short.
    """
    wide = flat.double()
    rank, counts = runs[0].rows, [run.count for run in runs]
    grams = wide.new_empty(sum(counts), rank, rank)
    for run, gram in zip(runs, grams.split(counts), strict=True):
        rows = run.of(wide)
        torch.bmm(rows, rows.mT, out=gram)
    longest = max(run.columns for run in runs)
    shift = 2 * rank * (longest + rank) * torch.finfo(torch.float64).eps
    squares = grams.diagonal(dim1=1, dim2=2)
    squares.mul_(1 + shift).add_(_NOTHING)
    lower = torch.linalg.cholesky_ex(grams).L
    identity = torch.eye(rank, dtype=wide.dtype, device=wide.device)
    inverses = torch.linalg.solve_triangular(lower, identity.expand_as(lower), upper=False)
    left_over = lower.diagonal(dim1=1, dim2=2).square()
    inverses = torch.where((left_over > _NOISE * shift * squares)[..., None], inverses, 0)
    made = torch.empty_like(wide)
    for run, inverse in zip(runs, inverses.split(counts), strict=True):
        torch.bmm(inverse, run.of(wide), out=run.of(made))
    return made.to(flat.dtype).nan_to_num_(0.0, 0.0, 0.0)
