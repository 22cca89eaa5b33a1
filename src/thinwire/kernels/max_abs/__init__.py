"""The largest magnitude of all elements: one reading of memory, which also finds NaN and Inf."""

from typing import Any

import torch
from torch import Tensor

from thinwire.kernels import Implementation, implementation

BUILT: tuple[Implementation, ...] = ("reference", "numba")


def max_abs(x: Tensor) -> Tensor:
    """max |x|, 0-D float64 on x's device: NaN where `x` holds one, 0 where it holds nothing.

    Any shape and strides; of torch's floating-point types those of 16 bits and more.
    """
    if x.numel() == 0:
        return torch.zeros((), dtype=torch.float64, device=x.device)
    # What does not lie in one piece is left to torch, which copies nothing for it.
    built = BUILT if x.is_contiguous() else BUILT[:1]
    found: Tensor = _implementation(x, built).max_abs(x)
    return found


def _implementation(x: Tensor, built: tuple[Implementation, ...]) -> Any:
    return implementation(__name__, x.device, built)
