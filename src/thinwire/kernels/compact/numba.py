"""Threshold compaction on the CPU: one pass, 64 elements at a time.

One vector comparison gives a word with a bit for each of 64 elements; survivors are rare, so most
words are zero. What is accumulated is compared while it still lies in the first-level cache.
"""

from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from torch import Tensor

from thinwire.kernels import _threads
from thinwire.kernels._numba import (
    ONE,
    Array,
    Generator,
    Indices,
    add,
    ones,
    summands,
    trailing_zeros,
    view,
)
from thinwire.kernels.addend import Addend
from thinwire.kernels.compact.found import Found

WORD = 64  # elements compared at once, one bit each
BLOCK = 512  # elements added before they are compared: in the first-level cache, and few calls
LAST = np.uint64(1 << 63)


def _reaching(context: Any, x: Any, at: Any, limit: Any) -> Generator:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, limit = arguments
        width = signature.args[0].dtype.bitwidth
        numbers = ir.VectorType(limit.type, WORD)
        words = ir.VectorType(ir.IntType(width), WORD)
        data = context.make_array(signature.args[0])(context, builder, array).data
        place = builder.bitcast(builder.gep(data, [at]), words.as_pointer())
        without_sign = ir.Constant(words, [(1 << (width - 1)) - 1] * WORD)
        magnitudes = builder.and_(builder.load(place, align=width // 8), without_sign)
        nothing, first = ir.Constant(numbers, ir.Undefined), ir.Constant(ir.IntType(32), 0)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), WORD), [0] * WORD)
        limits = builder.shuffle_vector(
            builder.insert_element(nothing, limit, first), nothing, everywhere
        )
        reached = builder.fcmp_ordered(">=", builder.bitcast(magnitudes, numbers), limits)
        return builder.bitcast(reached, ir.IntType(WORD))

    return types.uint64(x, types.int64, x.dtype), generate


reaching: Any = intrinsic(_reaching)
"""A uint64 whose bit i says whether |x[at + i]| ≥ limit, for 64 elements of a contiguous array."""


@njit(cache=True, nogil=True)
def word_at(x: Array, at: int, limit: Any) -> Any:
    """`reaching`, also where `x` ends within the word."""
    if at + WORD <= x.size:
        return reaching(x, at, limit)
    word = np.uint64(0)
    for i in range(at, x.size):
        word |= np.uint64(abs(x[i]) >= limit) << np.uint64(i - at)
    return word


@njit(cache=True, nogil=True)
def scan(x: Array, start: int, limit: Any, indices: Indices, values: Array, count: Any) -> Any:
    """List what reaches `limit` behind the first `count`, and count on.

    `x` begins at index `start`. The first of a word's survivors is written whether there is one
    or not, if there is room: at a density of 1 % half of the words have one, and a branch would be
    guessed wrong as often.
    """
    last_with_room = indices.size - WORD
    for at in range(0, x.size, WORD):
        word = word_at(x, at, limit)
        end = count + np.int64(ones(word))
        if count <= last_with_room:
            i = at + np.int64(trailing_zeros(word | LAST))
            # LAST may lie beyond the end: then there was none.
            indices[count], values[count] = start + i, x[i if i < x.size else at]
            for place in range(count + 1, end):
                word &= word - ONE
                i = at + np.int64(trailing_zeros(word))
                indices[place], values[place] = start + i, x[i]
        else:
            for place in range(count, min(end, indices.size)):
                i = at + np.int64(trailing_zeros(word))
                indices[place], values[place] = start + i, x[i]
                word &= word - ONE
        count = end
    return count


@njit(cache=True, nogil=True)
def add_and_scan(
    x: Array, grad: Array | None, velocity: Array | None, factor: Any, clear: bool,
    bad: Array | None, start: int, end: int, limit: Any, indices: Indices, values: Array,
    count: Any,
) -> Any:  # fmt: skip
    """Add, and `scan` what came of it, from `start` to `end`."""
    if grad is None:
        return scan(x[start:end], start, limit, indices, values, count)
    for low in range(start, end, BLOCK):
        block = add(x, grad, velocity, factor, clear, bad, low, min(low + BLOCK, end))
        count = scan(block, low, limit, indices, values, count)
    return count


def compact(x: Tensor, threshold: Tensor, capacity: int, addend: Addend | None = None) -> Found:
    indices, values = torch.empty(capacity, dtype=torch.int64), torch.empty(capacity, dtype=x.dtype)
    return compact_into(indices, values, x, threshold, addend)


def compact_into(
    indices: Tensor, values: Tensor, x: Tensor, threshold: Tensor, addend: Addend | None = None
) -> Found:
    """`compact` into memory that is at hand: fresh pages cost more than the survivors.

    One thread writes into the result, the others into lists of their own, appended in order.
    """
    source, added, limit = view(x), summands(x, addend), least(threshold)
    result = indices.numpy(), values.numpy()

    def work(which: int, first: int, end: int) -> tuple[int, Indices, Array]:
        room = min(indices.numel(), end - first)
        own = (np.empty(room, np.int64), np.empty(room, source.dtype)) if which else result
        return int(add_and_scan(source, *added, first, end, limit, *own, 0)), *own

    (count, *_), *others = _threads.run(work, _threads.pieces(x.numel()))
    for passed, *own in others:
        for whole, part in zip(result, own, strict=True):
            rest = whole[count : count + passed]
            rest[:] = part[: rest.size]
        count += passed
    return Found(indices, values, torch.tensor(count))


def least(threshold: Tensor) -> Any:
    """The smallest magnitude that passes: zero does not, whatever the threshold."""
    limit = view(threshold)[()]
    above_zero = np.nextafter(limit.dtype.type(0), limit.dtype.type(1))
    return above_zero if limit < above_zero else limit
