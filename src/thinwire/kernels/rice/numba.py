"""Rice's numbers on the CPU."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels._numba import Indices


@njit(cache=True, nogil=True)
def _from_indices(indices: Indices, low_bits: int, out: Indices) -> bool:
    mask = (np.int64(1) << low_bits) - 1
    before, high, lowest = np.int64(-1), np.int64(0), np.int64(0)
    for i in range(indices.size):
        gap = indices[i] - before - 1
        before = indices[i]
        lowest = min(lowest, gap)
        high += gap >> low_bits
        out[i] = high << low_bits | gap & mask
    return bool(lowest >= 0)


@njit(cache=True, nogil=True)
def _to_indices(numbers: Indices, low_bits: int, rows: int, out: Indices) -> bool:
    mask = (np.int64(1) << low_bits) - 1
    before, high, sound = np.int64(-1), np.int64(0), True
    for i in range(numbers.size):
        gap = (numbers[i] & ~mask) - high | numbers[i] & mask
        high = numbers[i] & ~mask
        # Before it can pass 2^63 it passes `rows`; from there on nothing matters any more.
        sound &= 0 <= gap < rows - before - 1
        before += gap + 1
        out[i] = before
    return sound


def from_indices(indices: Tensor, low_bits: int) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(indices)
    return out, torch.tensor(bool(_from_indices(indices.numpy(), low_bits, out.numpy())))


def to_indices(numbers: Tensor, low_bits: int, rows: int) -> tuple[Tensor, Tensor]:
    view = numbers.numpy()
    return numbers, torch.tensor(bool(_to_indices(view, low_bits, rows, view)))
