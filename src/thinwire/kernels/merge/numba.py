"""Sums of ordered sparse vectors on the CPU: two fingers, one pass."""

import numpy as np
import torch
from numba import njit

from thinwire.kernels._numba import Array, Indices
from thinwire.types import Sparse


@njit(cache=True, nogil=True)
def _merge(
    a: Indices, a_values: Array, b: Indices, b_values: Array, out: Indices, out_values: Array
) -> int:
    i, j, at = 0, 0, 0
    nothing = -out_values.dtype.type(0.0)  # x + -0.0 is x, bit for bit
    while i < a.size and j < b.size:
        # Selections, not branches: which side comes next cannot be predicted.
        left, right = a[i], b[j]
        from_a, from_b = left <= right, right <= left
        x = a_values[i] if from_a else nothing
        y = b_values[j] if from_b else nothing
        out[at] = left if from_a else right
        out_values[at] = x + y
        i += from_a
        j += from_b
        at += 1
    for rest in range(i, a.size):
        out[at], out_values[at] = a[rest], a_values[rest]
        at += 1
    for rest in range(j, b.size):
        out[at], out_values[at] = b[rest], b_values[rest]
        at += 1
    return at


@njit(cache=True, nogil=True)
def _split(
    magnitudes: Array, threshold: float, k: int, indices: Indices, values: Array,
    kept: Indices, kept_values: Array, rest: Indices, rest_values: Array,
) -> None:  # fmt: skip
    above = 0
    for magnitude in magnitudes:
        above += magnitude > threshold
    ties = k - above
    at, left = 0, 0
    for i in range(indices.size):
        tied = magnitudes[i] == threshold and ties > 0
        if magnitudes[i] > threshold or tied:
            kept[at], kept_values[at] = indices[i], values[i]
            at += 1
            ties -= tied
        else:
            rest[left], rest_values[left] = indices[i], values[i]
            left += 1


def merge(a: Sparse, b: Sparse) -> Sparse:
    indices = torch.empty(a.count + b.count, dtype=torch.int64)
    values = torch.empty(a.count + b.count, dtype=a.values.dtype)
    count = _merge(
        a.indices.numpy(), a.values.detach().numpy(), b.indices.numpy(), b.values.detach().numpy(),
        indices.numpy(), values.numpy(),
    )  # fmt: skip
    return Sparse(indices[:count], values[:count], a.numel)


def split_top(s: Sparse, k: int) -> tuple[Sparse, Sparse]:
    values = s.values.detach().numpy()
    magnitudes = np.abs(values)
    magnitudes[np.isnan(magnitudes)] = np.inf
    threshold = np.partition(magnitudes, s.count - k)[s.count - k]
    kept, rest = (
        Sparse(s.indices.new_empty(count), s.values.new_empty(count), s.numel)
        for count in (k, s.count - k)
    )
    _split(
        magnitudes, threshold, k, s.indices.numpy(), values,
        kept.indices.numpy(), kept.values.numpy(), rest.indices.numpy(), rest.values.numpy(),
    )  # fmt: skip
    return kept, rest
