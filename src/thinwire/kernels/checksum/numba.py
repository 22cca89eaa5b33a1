"""The checksum on the CPU: one pass, nothing allocated."""

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from thinwire.kernels.checksum.reference import SEED
from thinwire.rng import MIX_MULTIPLIERS, MIX_SHIFTS, as_signed

# Numba makes a float of uint64 with int64: every operand is a uint64.
OFFSET = np.uint64(SEED * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
M1, M2 = (np.uint64(m) for m in MIX_MULTIPLIERS)
S1, S2, S3 = (np.uint64(s) for s in MIX_SHIFTS)
HALF, ONE = np.uint64(32), np.uint64(1)


@njit(cache=True, nogil=True)
def _weighted_sum(words: NDArray[np.uint64], first: np.uint64) -> np.uint64:
    total = np.uint64(0)
    for i in range(words.size):
        x = first + np.uint64(i) + OFFSET
        x = (x ^ (x >> S1)) * M1
        x = (x ^ (x >> S2)) * M2
        x = (x ^ (x >> S3)) | ONE
        total += (words[i] ^ (words[i] >> HALF)) * x
    return total


def checksum(words: Tensor, first: int = 0) -> Tensor:
    """See the package."""
    total = _weighted_sum(words.numpy().view(np.uint64), np.uint64(first))
    return torch.tensor(as_signed(int(total)))
