"""Bins and their means on the CPU: a group at a time, in the cache."""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels._numba import Array, view


@njit(cache=True, nogil=True)
def _halved_sum(x: Array) -> Any:
    """The sum of `x`, which is overwritten, in the order of `_numeric.row_sums`."""
    size = x.size
    while size > 1:
        half = (size + 1) // 2
        for i in range(size - half):
            x[i] += x[half + i]
        size = half
    return x[0]


@njit(cache=True, nogil=True)
def _scale_of(own: Array) -> float:
    """The largest magnitude, NaN where one is."""
    largest = 0.0
    for value in own:
        size = np.float64(abs(value))
        if size != size:
            return size
        largest = max(largest, size)
    return largest


@njit(cache=True, nogil=True)
def _to_centroids(values: Array, group: int, centroids: Array, codes: Array) -> None:
    count = values.shape[1]
    shares, work = np.zeros(group), np.zeros(group)
    for row in range(values.shape[0]):
        for number in range(centroids.shape[1]):
            first = number * group
            own = values[row, first : min(first + group, count)]
            its = codes[row, first : first + own.size]
            largest = _scale_of(own)
            finite = largest < np.inf
            by = largest if finite and largest > 0 else 1.0
            shares[own.size :] = 0
            for i in range(own.size):
                shares[i] = np.float64(own[i]) / by
            for i in range(group):
                work[i] = shares[i] * shares[i]
            mean_square = _halved_sum(work) / own.size
            for i in range(own.size):
                outer = shares[i] * shares[i] >= mean_square
                its[i] = 1 - outer if own[i] < 0 else 2 + outer
            for code in range(4):
                work[own.size :] = 0
                members = 0
                for i in range(own.size):
                    mine = its[i] == code
                    members += mine
                    work[i] = shares[i] if mine else 0.0
                mean = _halved_sum(work) / max(members, 1)
                mean = min(max(mean, -1.0), 1.0) * by
                centroids[row, number, code] = mean + 0.0 if finite else np.nan


@njit(cache=True, nogil=True)
def _from_centroids(centroids: Array, codes: Array, group: int, values: Array) -> None:
    for row in range(codes.shape[0]):
        for number in range(centroids.shape[1]):
            means = centroids[row, number]
            for i in range(number * group, min((number + 1) * group, codes.shape[1])):
                values[row, i] = means[codes[row, i]]


def to_centroids(values: Tensor, group: int) -> tuple[Tensor, Tensor]:
    size, count = values.shape
    centroids = values.new_empty(size, -(-count // group), 4)
    codes = torch.empty(size, count, dtype=torch.int32)
    _to_centroids(view(values), group, view(centroids), codes.numpy())
    return centroids, codes


def from_centroids(centroids: Tensor, codes: Tensor, group: int) -> Tensor:
    values = centroids.new_empty(codes.shape)
    _from_centroids(view(centroids), codes.numpy(), group, view(values))
    return values
