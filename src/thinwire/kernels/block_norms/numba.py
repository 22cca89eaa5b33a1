"""Norms of blocks on the CPU: one pass, the accumulation in it."""

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from thinwire.kernels import _threads

Array = NDArray[Any]
_REORDERED = {"reassoc", "nsz"}  # sums of squares may be vectorised; nothing else changes


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def _norm(x: Array) -> Any:
    total = x.dtype.type(0)
    for i in range(x.size):  # vectorised; a loop over the values themselves is not
        total += x[i] * x[i]
    return np.sqrt(total)


@njit(cache=True, nogil=True)
def _norms(x: Array, block: int, first: int, end: int, norms: Array) -> None:
    for b in range(first, end):
        norms[b] = _norm(x[b * block : (b + 1) * block])


@njit(cache=True, nogil=True)
def _accumulate(
    x: Array, grad: Array, clear: bool, block: int, first: int, end: int, norms: Array
) -> None:
    for b in range(first, end):
        mine, other = x[b * block : (b + 1) * block], grad[b * block : (b + 1) * block]
        for i in range(mine.size):
            mine[i] += other[i]
        if clear:
            other[:] = 0
        norms[b] = _norm(mine)  # still in the cache, and summed as `_norms` sums it


def block_norms(x: Tensor, block: int) -> Tensor:
    """See the package."""
    norms, flat = _room(x, block), x.detach().numpy()
    _threads.run(
        lambda _, first, end: _norms(flat, block, first, end, norms.numpy()),
        _pieces(x.numel(), block),
    )
    return norms


def accumulate_block_norms(residual: Tensor, grad: Tensor, block: int, clear: bool) -> Tensor:
    """See the package."""
    if grad.dtype != residual.dtype:  # Numba has no half precision to add
        residual.add_(grad)
        if clear:
            grad.zero_()
        return block_norms(residual, block)
    norms, flat, other = _room(residual, block), residual.detach().numpy(), grad.detach().numpy()
    _threads.run(
        lambda _, first, end: _accumulate(flat, other, clear, block, first, end, norms.numpy()),
        _pieces(residual.numel(), block),
    )
    return norms


def _room(x: Tensor, block: int) -> Tensor:
    return torch.empty(-(-x.numel() // block), dtype=x.dtype)


def _pieces(numel: int, block: int) -> list[tuple[int, int]]:
    """Whole blocks for every thread."""
    return [(-(-first // block), -(-end // block)) for first, end in _threads.pieces(numel)]
