"""Batched decoding on the CPU: block by block, so that what is added to is still in the cache.

Half-precision targets are worked on in float32 copies of a block; torch converts them.
"""

from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
import torch
from numba import carray, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor

from thinwire.kernels import _threads
from thinwire.kernels.batched_decode import AdamW
from thinwire.types import Sparse, accumulator

Array = NDArray[Any]
BLOCK = 1 << 16  # elements: 256 KiB of float32, in the second-level cache


def _make_pointer(context: Any, address: Any, like: Any) -> tuple[Any, Callable[..., Any]]:
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


@njit(cache=True, nogil=True, error_model="numpy")  # no check for zero in every division
def _adam(
    table: Array, like: Array, cursors: Array, numbers: Array, mean: Array, start: int,
    param: Array, exp_avg: Array, exp_avg_sq: Array,
) -> None:  # fmt: skip
    """A step of the elements from `start` on, block by block of the size of `mean`."""
    scale = numbers[0]
    to = param.dtype.type
    decay, first_weight, second_decay = to(numbers[1]), to(numbers[2]), to(numbers[3])
    second_weight, step_size = to(numbers[4]), to(numbers[5])
    second_correction, eps = to(numbers[6]), to(numbers[7])
    for low in range(0, param.size, mean.size):
        high = min(low + mean.size, param.size)
        g = mean[: high - low]
        _add_up(table, like, cursors, g, start + low, start + high, scale)
        p, m, v = param[low:high], exp_avg[low:high], exp_avg_sq[low:high]
        for i in range(g.size):
            m[i] = m[i] + (g[i] - m[i]) * first_weight
            v[i] = v[i] * second_decay + (g[i] * second_weight) * g[i]
            divisor = np.sqrt(v[i]) * second_correction + eps
            p[i] = p[i] * decay - (m[i] * step_size) / divisor


def decode_sum(parts: Sequence[Sparse], out: Tensor, scale: float) -> Tensor:
    """See the package."""
    table, like = _table(parts)

    def sum_up(cursors: Array, start: int, block: Array) -> None:
        _sum(table, like, cursors, block, start, scale, BLOCK)

    _on_threads(table, sum_up, out)
    return out


def decode_adam(
    parts: Sequence[Sparse], param: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, adam: AdamW
) -> Tensor:
    """See the package."""
    table, like = _table(parts)
    numbers = np.array(astuple(adam))

    def step(cursors: Array, start: int, *state: Array) -> None:
        mean = np.empty(min(BLOCK // 8, state[0].size), state[0].dtype)
        _adam(table, like, cursors, numbers, mean, start, *state)

    _on_threads(table, step, param, exp_avg, exp_avg_sq)
    return param


def _on_threads(table: Array, work: Callable[..., None], *targets: Tensor) -> None:
    """work(cursors, start, *views) over pieces of the targets, in the accumulating dtype."""
    dtype = accumulator(targets[0].dtype)

    def run(_: int, start: int, stop: int) -> None:
        cursors = np.empty(table.shape[1], np.int64)
        _enter(table, start, cursors)
        if all(target.dtype == dtype for target in targets):
            work(cursors, start, *(target.detach().numpy()[start:stop] for target in targets))
            return
        for low in range(start, stop, BLOCK):
            views = [target.detach()[low : min(low + BLOCK, stop)] for target in targets]
            copies = [view.to(dtype, copy=True) for view in views]
            work(cursors, low, *(copy.numpy() for copy in copies))
            for view, copy in zip(views, copies, strict=True):
                view.copy_(copy)

    _threads.run(run, _threads.pieces(targets[0].numel()))


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
