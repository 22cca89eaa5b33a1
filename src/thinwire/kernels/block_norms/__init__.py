"""The L2 norm of each block, alone and fused with the accumulation before it.

`reference.py` says what is computed. Sums of squares are taken in whatever order is fastest, so
implementations agree to rounding, not to the bit; each of them always gives the same bits for the
same elements, on any number of threads.
"""

import torch
from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.block_norms import reference
from thinwire.kernels.compact import check, check_gradient

_SQUARES_UNDERFLOW_BELOW = 1e-15  # well above the root of float32's smallest normal number


def block_norms(x: Tensor, block: int) -> Tensor:
    """The norms of elements 0 … block - 1, block … 2·block - 1 and so on; the last may be short.

    Squares of float32 may leave its range. On a device float64 costs nothing here; on the CPU it
    is used only when all norms are tiny or one overflows. (Next to a norm of ordinary size it
    does not matter how tiny ones compare.)
    """
    check(x)
    norms = implementation(reference.block_norms, x.device)(x, block)
    return _in_range(norms, x, block)


def accumulate_block_norms(
    residual: Tensor, grad: Tensor, block: int, clear: bool = False
) -> Tensor:
    """residual += grad, in place; then `block_norms(residual, block)`. One pass.

    It can `clear` the gradient on its way, as in `kernels.compact`.
    """
    check(residual)
    check_gradient(residual, grad)
    fused = implementation(reference.accumulate_block_norms, residual.device)
    norms = fused(residual, grad, block, clear)
    return _in_range(norms, residual, block)


def _in_range(norms: Tensor, x: Tensor, block: int) -> Tensor:
    if norms.dtype == torch.float64 or not norms.numel():
        return norms
    greatest = float(norms.max())
    if _SQUARES_UNDERFLOW_BELOW < greatest < float("inf"):
        return norms
    return reference.norms_in(x, block, torch.float64)
