"""Sorting with ranks on the CPU: a radix sort, eleven bits at a time, lowest first."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels._numba import Array

DIGIT = 11
SLOTS = 1 << DIGIT


@njit(cache=True, nogil=True)
def _sort(keys: Array, spare: Array, order: Array, other: Array) -> bool:
    """Sorts `keys` with their positions; whether the result lies in `spare` and `other`."""
    swapped = False
    mask = keys.dtype.type(SLOTS - 1)
    for first in range(0, keys.itemsize * 8, DIGIT):
        shift = keys.dtype.type(first)
        starts = np.zeros(SLOTS + 1, np.int64)
        for key in keys:
            starts[np.int64((key >> shift) & mask) + 1] += 1
        if starts.max() == keys.size:
            continue  # all have the same digit here
        for slot in range(SLOTS):
            starts[slot + 1] += starts[slot]
        for i in range(keys.size):
            digit = np.int64((keys[i] >> shift) & mask)
            at = starts[digit]
            starts[digit] = at + 1
            spare[at] = keys[i]
            other[at] = order[i]
        keys, spare = spare, keys
        order, other = other, order
        swapped = not swapped
    return swapped


@njit(cache=True, nogil=True)
def _place(values: Array, order: Array, ascending: Array, ranks: Array) -> None:
    for place in range(order.size):
        ascending[place] = values[order[place]]
        ranks[order[place]] = place


def _keys(values: Tensor) -> Array:
    """Unsigned integers in the same order as the values."""
    width = values.element_size() * 8
    signed = torch.int32 if width == 32 else torch.int64
    whole = torch.where(values.isnan(), torch.nan, values + 0.0)  # one NaN, and one zero
    bits = whole.view(signed)
    # Negative numbers are turned over, all others only get above them.
    turned = bits ^ ((bits >> (width - 1)) | -(1 << (width - 1)))
    words = turned.numpy()
    return words.view(np.uint32) if width == 32 else words.view(np.uint64)


def sort_ranks(values: Tensor) -> tuple[Tensor, Tensor]:
    keys = _keys(values)
    order = np.arange(keys.size, dtype=np.int32)
    other = np.empty_like(order)
    swapped = _sort(keys, np.empty_like(keys), order, other)
    ascending, ranks = torch.empty_like(values), torch.empty(keys.size, dtype=torch.int32)
    _place(values.numpy(), other if swapped else order, ascending.numpy(), ranks.numpy())
    return ascending, ranks
