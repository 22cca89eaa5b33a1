"""Piecewise polynomials on the CPU: one pass each, all polynomials of a point at once."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels._numba import Array, Indices


@njit(cache=True, nogil=True)
def _farthest(curve: Array, first: int, last: int) -> tuple[float, int]:
    slope = (curve[last] - curve[first]) / (last - first)
    start, best, at = curve[first], -1.0, first
    for i in range(last - first + 1):
        distance = abs(curve[first + i] - (start + slope * np.float64(i)))
        if distance > best:
            best, at = distance, first + i
    return best, at


@njit(cache=True, nogil=True)
def _split(curve: Array, starts: Indices, least: int) -> int:
    """Fills `starts`, which has room for one more than the pieces, and says how many there are."""
    room = starts.size - 1
    far, at = np.zeros(room), np.zeros(room, np.int64)  # of each piece; 0 if it stays whole
    starts[0], starts[1] = 0, curve.size
    pieces, fresh = 1, 0
    while True:
        for piece in (fresh, fresh + 1):
            if piece < pieces:
                far[piece] = 0.0
                first, end = starts[piece], starts[piece + 1]
                if end - first >= 2 * least:
                    distance, cut = _farthest(curve, first, end - 1)
                    if least <= cut - first and least <= end - cut:
                        far[piece], at[piece] = distance, cut
        if pieces == room:
            return pieces
        fresh = int(np.argmax(far[:pieces]))
        if far[fresh] <= 0:
            return pieces
        for piece in range(pieces, fresh, -1):
            starts[piece + 1] = starts[piece]
            if piece > fresh + 1:
                far[piece], at[piece] = far[piece - 1], at[piece - 1]
        starts[fresh + 1] = at[fresh]
        pieces += 1


@njit(cache=True, nogil=True)
def _recurrence(points: int, degree: int) -> Array:
    """The b_k from b_1 on, for the polynomials there are."""
    out = np.zeros(min(degree, points - 1))
    for k in range(1, out.size + 1):
        square = np.float64(k * k)
        span = (points - 1.0) ** 2 * (4 * k * k - 1)
        out[k - 1] = square * (np.float64(points) ** 2 - square) / span
    return out


@njit(cache=True, nogil=True)
def _project(curve: Array, lengths: Indices, out: Array) -> None:
    start = 0
    for piece in range(lengths.size):
        points = lengths[piece]
        if not points:
            continue
        b = _recurrence(points, out.shape[1] - 1)
        sums = out[piece]
        for i in range(points):
            y, t = curve[start + i], np.float64(2 * i - (points - 1)) / max(1, points - 1)
            before, now = 1.0, t
            sums[0] += y
            for k in range(1, b.size + 1):
                sums[k] += y * now
                before, now = now, t * now - b[k - 1] * before
        norm = np.float64(points)
        sums[0] /= norm
        for k in range(1, b.size + 1):
            norm *= b[k - 1]
            sums[k] /= norm
        start += points


@njit(cache=True, nogil=True)
def _evaluate(coefficients: Array, lengths: Indices, out: Array) -> None:
    start = 0
    for piece in range(lengths.size):
        points, row = lengths[piece], coefficients[piece]
        if not points:
            continue
        b = _recurrence(points, row.size - 1)
        for i in range(points):
            t = np.float64(2 * i - (points - 1)) / max(1, points - 1)
            before, now, total = 1.0, t, row[0]
            for k in range(1, b.size + 1):
                total += row[k] * now
                before, now = now, t * now - b[k - 1] * before
            out[start + i] = total
        start += points


def split(curve: Tensor, pieces: int, least: int) -> Tensor:
    starts = np.zeros(pieces + 1, np.int64)
    count = _split(curve.numpy(), starts, least)
    starts[count:] = curve.numel()
    return torch.from_numpy(np.diff(starts))


def project(curve: Tensor, lengths: Tensor, degree: int) -> Tensor:
    out = curve.new_zeros((lengths.numel(), degree + 1))
    _project(curve.numpy(), lengths.numpy(), out.numpy())
    return out


def evaluate(coefficients: Tensor, lengths: Tensor, count: int) -> Tensor:
    out = coefficients.new_empty(count)
    _evaluate(coefficients.numpy(), lengths.numpy(), out.numpy())
    return out
