"""The checksum on the CPU: one pass, nothing allocated."""

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from thinwire.kernels._numba import mix, offset_of
from thinwire.kernels.checksum.reference import SEED
from thinwire.rng import as_signed

OFFSET = offset_of(SEED)
HALF, ONE = np.uint64(32), np.uint64(1)


@njit(cache=True, nogil=True)
def _weighted_sum(words: NDArray[np.uint64], first: np.uint64) -> np.uint64:
    total = np.uint64(0)
    for i in range(words.size):
        weight = mix(first + np.uint64(i), OFFSET) | ONE
        total += (words[i] ^ (words[i] >> HALF)) * weight
    return total


def checksum(words: Tensor, first: int = 0) -> Tensor:
    """See the package."""
    total = _weighted_sum(words.numpy().view(np.uint64), np.uint64(first))
    return torch.tensor(as_signed(int(total)))
