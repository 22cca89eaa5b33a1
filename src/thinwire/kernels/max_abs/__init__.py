"""The largest magnitude of all elements: one reading of memory, which also finds NaN and Inf."""

import torch
from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.max_abs import reference


def max_abs(x: Tensor) -> Tensor:
    """max |x|, 0-D float64 on x's device: NaN where `x` holds one, 0 where it holds nothing.

    Any shape and strides; of torch's floating-point types those of 16 bits and more.
    """
    if x.numel() == 0:
        return torch.zeros((), dtype=torch.float64, device=x.device)
    return implementation(reference.max_abs, x.device)(x)
