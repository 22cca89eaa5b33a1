"""Sums of ordered sparse vectors on the CPU: two fingers, one pass."""

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from thinwire.types import Sparse

Indices = NDArray[np.int64]
Values = NDArray[Any]


@njit(cache=True, nogil=True)
def _merge(
    a: Indices, a_values: Values, b: Indices, b_values: Values, out: Indices, out_values: Values
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
    magnitudes: Values, threshold: float, k: int, indices: Indices, values: Values,
    kept: Indices, kept_values: Values, rest: Indices, rest_values: Values,
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
    """See the package."""
    indices = torch.empty(a.count + b.count, dtype=torch.int64)
    values = torch.empty(a.count + b.count, dtype=a.values.dtype)
    count = _merge(
        _view(a.indices), _view(a.values), _view(b.indices), _view(b.values),
        indices.numpy(), values.numpy(),
    )  # fmt: skip
    return Sparse(indices[:count], values[:count], a.numel)


def split_top(s: Sparse, k: int) -> tuple[Sparse, Sparse]:
    """See the package."""
    magnitudes = np.abs(_view(s.values))
    magnitudes[np.isnan(magnitudes)] = np.inf
    threshold = np.partition(magnitudes, s.count - k)[s.count - k]
    kept, rest = (
        Sparse(s.indices.new_empty(count), s.values.new_empty(count), s.numel)
        for count in (k, s.count - k)
    )
    _split(
        magnitudes, threshold, k, _view(s.indices), _view(s.values),
        kept.indices.numpy(), kept.values.numpy(), rest.indices.numpy(), rest.values.numpy(),
    )  # fmt: skip
    return kept, rest


def _view(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().numpy()
    return array
