"""Stochastic rounding on the CPU: one pass, the random number never leaves its register."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels._numba import Array, mix, offset_of

LOW_BITS = np.uint64(40)
GRAIN = 2.0**-24


@njit(cache=True, nogil=True)
def _quantise(heights: Array, offset: np.uint64, out: Array) -> None:
    for i in range(heights.size):
        x = mix(np.uint64(i), offset) >> LOW_BITS
        # The fraction is exact in either width, so that comparing in float64 is as good as any.
        floor = np.int32(heights[i])
        up = np.float64(np.int32(x)) * GRAIN < np.float64(heights[i]) - np.float64(floor)
        out[i] = floor + up


def quantise(heights: Tensor, seed: int) -> Tensor:
    out = torch.empty(heights.numel(), dtype=torch.int32)
    _quantise(heights.numpy(), offset_of(seed), out.numpy())
    return out
