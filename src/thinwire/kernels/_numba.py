"""What the Numba kernels share: instructions, the integer hash, and adding to an accumulator.

Numba makes a float of uint64 with int64: where one operand is a uint64, all are.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import njit, types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray
from torch import Tensor

from thinwire.kernels.addend import Addend
from thinwire.rng import MIX_MULTIPLIERS, MIX_SHIFTS, mix_offset

Array = NDArray[Any]
Indices = NDArray[np.int64]
Words = NDArray[np.uint64]
Generator = tuple[Any, Callable[..., Any]]

ZERO, ONE = np.uint64(0), np.uint64(1)
SIX, LOW6, WORD = np.uint64(6), np.uint64(63), np.uint64(64)

M1, M2 = (np.uint64(m) for m in MIX_MULTIPLIERS)
S1, S2, S3 = (np.uint64(s) for s in MIX_SHIFTS)
S31, S33 = np.uint64(31), np.uint64(33)

HALF_MAGNITUDE, HALF_SIGN = np.uint32(0x7FFF), np.uint32(0x8000)
HALF_INFINITE, INFINITE = np.uint32(0x7C00 << 13), np.uint32(0x7F800000)
EXPONENT_GAP = np.float32(2.0**112)  # between the exponents' biases, 127 and 15
S13, S16 = np.uint32(13), np.uint32(16)


def _instruction(emit: Callable[[Any, Any, Any], Any]) -> Any:
    """A machine instruction on a uint64, for which Numba has no name."""

    def typed(context: Any, word: Any) -> Generator:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return emit(builder, arguments[0], context.get_constant(types.boolean, True))

        return types.uint64(types.uint64), generate

    return intrinsic(typed)


trailing_zeros = _instruction(lambda builder, word, nonzero: builder.cttz(word, nonzero))
"""How many zeros a uint64 other than 0 ends in."""

leading_zeros = _instruction(lambda builder, word, nonzero: builder.ctlz(word, nonzero))
"""How many zeros a uint64 other than 0 begins with."""

ones = _instruction(lambda builder, word, _: builder.ctpop(word))
"""How many bits of a uint64 are set."""


@njit(cache=True, nogil=True)
def peek(words: Words, start: np.uint64) -> np.uint64:
    """The 64 bits from bit `start` on; its word and the one after must exist."""
    word, shift = start >> SIX, start & LOW6
    bits: np.uint64 = (words[word] >> shift) | ((words[word + ONE] << ONE) << (LOW6 - shift))
    return bits


def offset_of(seed: int) -> np.uint64:
    """What `mix` is given of a seed."""
    return np.uint64(mix_offset(seed))


@njit(cache=True, nogil=True)
def mix(x: np.uint64, offset: np.uint64) -> np.uint64:
    """`rng.mix64`, given the `offset_of` the seed."""
    x += offset
    x = (x ^ (x >> S1)) * M1
    x = (x ^ (x >> S2)) * M2
    return x ^ (x >> S3)


@njit(cache=True, nogil=True)
def in_range(mixed: np.uint64, size: np.uint64) -> np.uint64:
    """A hash as a number in [0, size), as in `rng.hash_to_range`."""
    return ((mixed >> S33) * size) >> S31


def words_of(x: Tensor) -> Words:
    """The int64 tensor as unsigned words."""
    return x.numpy().view(np.uint64)


def view(x: Tensor) -> Array:
    """A tensor as Numba takes it: there are no floats of 16 bits, see `_widen_for`."""
    as_integers = {torch.bfloat16: torch.uint16, torch.float16: torch.int16}
    array: Array = x.detach().view(as_integers.get(x.dtype, x.dtype)).numpy()
    return array


Summands = tuple[Array | None, Array | None, Any, bool, Array | None]


def summands(x: Tensor, addend: Addend | None) -> Summands:
    """Gradient, velocity, factor, whether to clear, and the flag, as `add` takes them for parts
    of `x`."""
    if addend is None:
        return None, None, 0.0, False, None
    velocity = None if addend.velocity is None else view(addend.velocity)
    bad = None if addend.bad is None else addend.bad.view(1).numpy()
    return view(addend.grad), velocity, view(x[:0]).dtype.type(addend.factor), addend.clear, bad


@njit(cache=True, nogil=True)
def add(
    x: Array, grad: Array | None, velocity: Array | None, factor: Any, clear: bool,
    bad: Array | None, low: int, high: int,
) -> Array:  # fmt: skip
    """`Addend.add_to` for the elements from `low` to `high`, which it returns.

    Numba compiles anew where one of the arrays is None, without the branch that is not taken.
    """
    total = x[low:high]
    if grad is None:
        return total
    step = grad[low:high]
    strange = np.int32(0)
    if velocity is None:
        for i in range(total.size):
            given = _widen(step[i])
            if bad is not None:
                finite = abs(given) < np.inf
                strange |= np.int32(not finite)
                given = given if finite else _zero(given)
            total[i] = total[i] + given
    else:
        moving = velocity[low:high]
        for i in range(total.size):
            given = _widen(step[i])
            if bad is not None:
                finite = abs(given) < np.inf
                strange |= np.int32(not finite)
                given = given if finite else _zero(given)
            moving[i] = moving[i] * factor + given  # without fastmath not fused
            total[i] = total[i] + moving[i]
    if bad is not None and strange:
        bad[0] = 1
    if clear:
        step[:] = 0
    return total


@njit(cache=True, nogil=True)
def _zero(like: Any) -> Any:
    """Of the same type: another would make the sum one of another precision."""
    return type(like)(0)


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
    """Numba is given bfloat16 as uint16 and float16 as int16."""
    return {types.uint16: _from_bfloat16, types.int16: _from_float16}.get(number, _widen)
