"""`rng.mix64` and `rng.hash_to_range` for Numba. Only `numba.py` files import this.

Numba makes a float of uint64 with int64: every operand is a uint64.
"""

import numpy as np
from numba import njit

from thinwire.rng import MIX_MULTIPLIERS, MIX_SHIFTS, mix_offset

M1, M2 = (np.uint64(m) for m in MIX_MULTIPLIERS)
S1, S2, S3 = (np.uint64(s) for s in MIX_SHIFTS)
S31, S33 = np.uint64(31), np.uint64(33)


def offset_of(seed: int) -> np.uint64:
    """What `mix` is given of a seed."""
    return np.uint64(mix_offset(seed))


@njit(cache=True, nogil=True)
def mix(x: np.uint64, offset: np.uint64) -> np.uint64:
    """The hash of `x`."""
    x += offset
    x = (x ^ (x >> S1)) * M1
    x = (x ^ (x >> S2)) * M2
    return x ^ (x >> S3)


@njit(cache=True, nogil=True)
def in_range(mixed: np.uint64, size: np.uint64) -> np.uint64:
    """A hash as a number in [0, size)."""
    return ((mixed >> S33) * size) >> S31
