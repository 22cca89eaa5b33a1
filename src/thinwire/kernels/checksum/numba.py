"""The checksum on the CPU: one pass, nothing allocated."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels._numba import ONE, ZERO, Words, mix, offset_of, words_of
from thinwire.kernels.checksum.reference import SEED
from thinwire.rng import Seed, as_signed

OFFSET = offset_of(SEED)
HALF = np.uint64(32)


@njit(cache=True, nogil=True)
def _weighted_sum(words: Words, first: np.uint64) -> np.uint64:
    total = ZERO
    for i in range(words.size):
        weight = mix(first + np.uint64(i), OFFSET) | ONE
        total += (words[i] ^ (words[i] >> HALF)) * weight
    return total


def checksum(words: Tensor, first: Seed = 0) -> Tensor:
    total = _weighted_sum(words_of(words), np.uint64(int(first)))
    return torch.tensor(as_signed(int(total)))


def checksum_rows(words: Tensor, first: Seed = 0) -> Tensor:
    return torch.stack([checksum(row, first) for row in words])
