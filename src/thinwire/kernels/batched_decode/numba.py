"""Batched decoding on the CPU: block by block, so that what is added to is still in the cache.

Half-precision targets are added up a block of float32 at a time, which torch converts.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import carray, njit, types
from numba.extending import intrinsic
from torch import Tensor

from thinwire.kernels import _threads
from thinwire.kernels._numba import Array, Generator
from thinwire.types import Sparse, accumulator

BLOCK = 1 << 16  # elements: 256 KiB of float32, in the second-level cache


def _make_pointer(context: Any, address: Any, like: Any) -> Generator:
    pointer: Any = types.CPointer(like.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return pointer(types.int64, like), generate


_pointer: Any = intrinsic(_make_pointer)
"""An address as a pointer to what the array `like` is made of."""


@njit(cache=True, nogil=True)
def _enter(table: Array, start: int, cursors: Array) -> None:
    """The first element of each part that is not below `start`."""
    for p in range(table.shape[1]):
        indices = carray(_pointer(table[0, p], table), table[2, p])
        cursors[p] = np.searchsorted(indices, start)


@njit(cache=True, nogil=True)
def _add_up(
    table: Array, like: Array, cursors: Array, out: Array, start: int, stop: int, scale: float
) -> None:
    """out = scale · (the parts' sum in [start, stop)); the cursors move to `stop`."""
    out[:] = 0
    touched = 0
    for p in range(table.shape[1]):
        indices = carray(_pointer(table[0, p], table), table[2, p])
        values = carray(_pointer(table[1, p], like), table[2, p])
        at = cursors[p]
        while at < indices.size and indices[at] < stop:
            out[indices[at] - start] += out.dtype.type(values[at])
            at += 1
        touched += at - cursors[p]
        cursors[p] = at
    if touched and scale != 1:
        factor = out.dtype.type(scale)
        for i in range(out.size):
            out[i] *= factor


@njit(cache=True, nogil=True)
def _sum(
    table: Array, like: Array, cursors: Array, out: Array, start: int, scale: float, block: int
) -> None:
    for low in range(0, out.size, block):
        high = min(low + block, out.size)
        _add_up(table, like, cursors, out[low:high], start + low, start + high, scale)


def decode_sum(parts: Sequence[Sparse], out: Tensor, scale: float | Tensor) -> Tensor:
    table, like = _table(parts)
    factor = float(scale)
    target, dtype = out.detach(), accumulator(out.dtype)

    def work(_: int, start: int, stop: int) -> None:
        cursors = np.empty(table.shape[1], np.int64)
        _enter(table, start, cursors)
        if target.dtype == dtype:
            _sum(table, like, cursors, target.numpy()[start:stop], start, factor, BLOCK)
            return
        for low in range(start, stop, BLOCK):
            view = target[low : min(low + BLOCK, stop)]
            block = torch.empty_like(view, dtype=dtype)
            _sum(table, like, cursors, block.numpy(), low, factor, BLOCK)
            view.copy_(block)

    _threads.run(work, _threads.pieces(out.numel()))
    return out


@njit(cache=True, nogil=True)
def _add_row(indices: Array, values: Array, total: Array, scale: float) -> None:
    factor = total.dtype.type(scale)
    for i in range(indices.size):
        if 0 <= indices[i] < total.size:
            total[indices[i]] += total.dtype.type(values[i]) * factor


def add_rows(indices: Tensor, values: Tensor, total: Tensor, scale: float) -> Tensor:
    for row, own in zip(indices.numpy(), values.detach().numpy(), strict=True):
        _add_row(row, own, total.detach().numpy(), scale)
    return values[:, :1].isnan().any().to(torch.int64)


def _table(parts: Sequence[Sparse]) -> tuple[Array, Array]:
    """Addresses and sizes of the parts, and an array of their values' dtype.

    One compilation serves any number of parts; a tuple of arrays would need one for each.
    """
    rows = [
        [part.indices.data_ptr() for part in parts],
        [part.values.data_ptr() for part in parts],
        [part.count for part in parts],
    ]
    like = parts[0].values if parts else torch.empty(0)
    return np.array(rows, np.int64).reshape(3, len(parts)), like[:0].numpy()
