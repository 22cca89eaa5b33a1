"""The L2 norm of each block, alone or with an accumulation before it.

`reference.py` says what is computed. Sums of squares are taken in whatever order is fastest, so
implementations agree to rounding, not to the bit; each of them always gives the same bits for the
same elements, on any number of threads.
"""

import torch
from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.addend import Addend, check
from thinwire.kernels.block_norms import reference

_SQUARES_UNDERFLOW_BELOW = 1e-15  # well above the root of float32's smallest normal number


def block_norms(x: Tensor, block: int, addend: Addend | None = None) -> Tensor:
    """The norms of elements 0 … block - 1, block … 2·block - 1 and so on; the last may be short.

    First adds `addend`, in the same pass. Squares of float32 may leave its range. On a device they
    are summed in float64, which costs nothing here; on the CPU only when all norms are tiny or one
    overflows. (Next to a norm of ordinary size it does not matter how tiny ones compare.)
    """
    check(x, addend=addend)
    norms = implementation(reference.block_norms, x.device)(x, block, addend)
    if x.is_cuda or norms.dtype == torch.float64 or not norms.numel():
        return norms
    if _SQUARES_UNDERFLOW_BELOW < float(norms.max()) < float("inf"):
        return norms
    return reference.norms_in(x, block, torch.float64)
