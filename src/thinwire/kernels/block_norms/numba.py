"""Norms of blocks on the CPU: one pass, the accumulation in it."""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels import _threads
from thinwire.kernels._numba import Array, add, summands, view
from thinwire.kernels.addend import Addend
from thinwire.kernels.compact.numba import BLOCK

_REORDERED = {"reassoc", "nsz"}  # sums of squares may be vectorised; nothing else changes


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def _norm(x: Array) -> Any:
    total = x.dtype.type(0)
    for i in range(x.size):  # vectorised; a loop over the values themselves is not
        total += x[i] * x[i]
    return np.sqrt(total)


@njit(cache=True, nogil=True)
def _norms(
    x: Array, grad: Array | None, velocity: Array | None, factor: Any, clear: bool,
    bad: Array | None, block: int, first: int, end: int, norms: Array,
) -> None:  # fmt: skip
    """Of blocks `first` to `end`, summed up while they are still in the cache."""
    together = max(1, BLOCK // block)
    for low in range(first, end, together):
        high = min(low + together, end)
        total = add(x, grad, velocity, factor, clear, bad, low * block, high * block)
        for b in range(high - low):
            norms[low + b] = _norm(total[b * block : (b + 1) * block])


def block_norms(x: Tensor, block: int, addend: Addend | None = None) -> Tensor:
    """Every thread has whole blocks."""
    norms = torch.empty(-(-x.numel() // block), dtype=x.dtype)
    flat, added = view(x), summands(x, addend)
    _threads.run(
        lambda _, first, end: _norms(flat, *added, block, first, end, norms.numpy()),
        [(-(-first // block), -(-end // block)) for first, end in _threads.pieces(x.numel())],
    )
    return norms
