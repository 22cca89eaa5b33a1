"""Threshold compaction on the CPU: one pass, 64 elements at a time.

One vector comparison gives a word with a bit for each of 64 elements; survivors are rare, so most
words are zero. What is accumulated is compared while it still lies in the first-level cache.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray
from torch import Tensor

from thinwire.kernels import _threads
from thinwire.kernels._bits import Generator, ones, trailing_zeros
from thinwire.kernels.compact.found import Found

Array = NDArray[Any]
Indices = NDArray[np.int64]

WORD = 64  # elements compared at once, one bit each
BLOCK = 128  # elements accumulated before they are compared: they stay in the first-level cache
ONE, LAST = np.uint64(1), np.uint64(1 << 63)
HALF_MAGNITUDE, HALF_SIGN = np.uint32(0x7FFF), np.uint32(0x8000)
HALF_INFINITE, INFINITE = np.uint32(0x7C00 << 13), np.uint32(0x7F800000)
EXPONENT_GAP = np.float32(2.0**112)  # between the exponents' biases, 127 and 15
S13, S16 = np.uint32(13), np.uint32(16)


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


def _widen(number: Any) -> Any:
    """A gradient's element as a number that can be added, as it is."""
    return number


def _from_bfloat16(number: Any) -> Any:
    return np.uint32(np.uint32(number) << S16).view(np.float32)


def _from_float16(number: Any) -> Any:
    """Exact, also for the denormal: the product moves the exponent to where float32 has it."""
    word = np.uint32(number)
    shifted = np.uint32((word & HALF_MAGNITUDE) << S13)
    magnitude = np.float32(shifted.view(np.float32) * EXPONENT_GAP).view(np.uint32)
    exponent = INFINITE if shifted >= HALF_INFINITE else np.uint32(0)
    return np.uint32(magnitude | exponent | ((word & HALF_SIGN) << S16)).view(np.float32)


@overload(_widen)
def _widen_for(number: Any) -> Any:
    """Numba knows no floats of 16 bits: it is given bfloat16 as uint16 and float16 as int16."""
    return {types.uint16: _from_bfloat16, types.int16: _from_float16}.get(number, _widen)


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
def add(residual: Array, grad: Array, clear: bool) -> None:
    """residual += grad; then grad = 0, if it is to be cleared."""
    for i in range(residual.size):
        residual[i] = residual[i] + _widen(grad[i])
    if clear:
        grad[:] = 0


@njit(cache=True, nogil=True)
def _compact(x: Array, start: int, limit: Any, indices: Indices, values: Array) -> Any:
    return scan(x, start, limit, indices, values, 0)


@njit(cache=True, nogil=True)
def _accumulate(
    residual: Array, grad: Array, clear: bool,
    start: int, limit: Any, indices: Indices, values: Array,
) -> int:  # fmt: skip
    count = 0
    for first in range(0, residual.size, BLOCK):
        block = residual[first : first + BLOCK]
        add(block, grad[first : first + BLOCK], clear)
        count = scan(block, start + first, limit, indices, values, count)
    return count


@njit(cache=True, nogil=True)
def _accumulate_momentum(
    velocity: Array, residual: Array, grad: Array, clear: bool, factor: Any,
    start: int, limit: Any, indices: Indices, values: Array,
) -> int:  # fmt: skip
    count = 0
    for first in range(0, residual.size, BLOCK):
        v, r = velocity[first : first + BLOCK], residual[first : first + BLOCK]
        g = grad[first : first + BLOCK]
        for i in range(r.size):
            v[i] = v[i] * factor + _widen(g[i])  # without fastmath no fused multiply-add
            r[i] = r[i] + v[i]
        if clear:
            g[:] = 0
        count = scan(r, start + first, limit, indices, values, count)
    return count


def compact(x: Tensor, threshold: Tensor, capacity: int) -> Found:
    """See the package."""
    return compact_into(*_room(x, capacity), x, threshold)


def compact_into(indices: Tensor, values: Tensor, x: Tensor, threshold: Tensor) -> Found:
    """`compact` into memory that is at hand: fresh pages cost more than the survivors."""
    source, limit = view(x), least(threshold)

    def kernel(first: int, end: int, indices: Indices, values: Array) -> int:
        return int(_compact(source[first:end], first, limit, indices, values))

    return _in_pieces(kernel, x.numel(), indices, values)


def accumulate(
    residual: Tensor, grad: Tensor, threshold: Tensor, capacity: int, clear: bool
) -> Found:
    """See the package."""
    r, g, limit = view(residual), view(grad), least(threshold)

    def kernel(first: int, end: int, indices: Indices, values: Array) -> int:
        part = slice(first, end)
        return int(_accumulate(r[part], g[part], clear, first, limit, indices, values))

    return _in_pieces(kernel, residual.numel(), *_room(residual, capacity))


def accumulate_momentum(
    velocity: Tensor,
    residual: Tensor,
    grad: Tensor,
    factor: float,
    threshold: Tensor,
    capacity: int,
    clear: bool,
) -> Found:
    """See the package."""
    v, r, g, limit = view(velocity), view(residual), view(grad), least(threshold)
    times = limit.dtype.type(factor)

    def kernel(first: int, end: int, indices: Indices, values: Array) -> int:
        part = slice(first, end)
        added = (v[part], r[part], g[part], clear, times)
        return int(_accumulate_momentum(*added, first, limit, indices, values))

    return _in_pieces(kernel, residual.numel(), *_room(residual, capacity))


def _room(x: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
    return torch.empty(capacity, dtype=torch.int64), torch.empty(capacity, dtype=x.dtype)


def _in_pieces(
    kernel: Callable[[int, int, Indices, Array], int], numel: int, indices: Tensor, values: Tensor
) -> Found:
    """One thread writes into the result, the others into lists of their own, appended in order."""
    result = indices.numpy(), values.numpy()

    def work(which: int, first: int, end: int) -> tuple[int, Indices, Array]:
        room = min(indices.numel(), end - first)
        own = (np.empty(room, np.int64), np.empty(room, result[1].dtype)) if which else result
        return kernel(first, end, *own), *own

    (count, *_), *others = _threads.run(work, _threads.pieces(numel))
    for found, *own in others:
        for whole, part in zip(result, own, strict=True):
            rest = whole[count : count + found]
            rest[:] = part[: rest.size]
        count += found
    return Found(indices, values, torch.tensor(count))


def view(x: Tensor) -> Array:
    """A tensor as Numba takes it; see `_widen_for`."""
    as_integers = {torch.bfloat16: torch.uint16, torch.float16: torch.int16}
    array: Array = x.detach().view(as_integers.get(x.dtype, x.dtype)).numpy()
    return array


def least(threshold: Tensor) -> Any:
    """The smallest magnitude that passes: zero does not, whatever the threshold."""
    limit = view(threshold)[()]
    above_zero = np.nextafter(limit.dtype.type(0), limit.dtype.type(1))
    return above_zero if limit < above_zero else limit
