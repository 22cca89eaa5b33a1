"""What the CPU does with one group, while it is in the cache.

A group's largest magnitude is the greatest of its words without their signs, as in `max_abs`.
Loops are short and without branches, so that they become vector instructions. What every group
calls is inlined: Numba counts references to each array that is passed on, for half as long as the
work on a group takes; assigning to a slice takes longer still.
"""

from typing import Any

import numpy as np
from numba import njit

from thinwire.kernels._numba import Array, mix
from thinwire.kernels.few_bits.form import NAN_SCALE, SMALLEST

GRAIN = np.float32(2.0**-24)
LOW_BITS, SIGN_BIT, S16 = np.uint64(40), np.uint64(63), np.uint32(16)
NAN, LOW_HALF = np.uint16(NAN_SCALE), np.uint32(0xFFFF)
Seeds = tuple[bool, np.uint64, bool, np.uint64]
"""Whether it rounds at random, and by what; whether it rotates, and by what."""


@njit(cache=True, nogil=True, inline="always")
def _most(words: Array, magnitude: Any) -> Any:
    most = words.dtype.type(0)
    for i in range(words.size):
        most = max(most, words[i] & magnitude)
    return most


@njit(cache=True, nogil=True, inline="always")
def _scale_of(values: Array, words: Array, levels: Any, largest: np.float32) -> Any:
    """A group's scale as float32, and whether something in it is not finite."""
    kind = words.dtype.type
    words[0] = _most(words[1:], kind(~kind(0)) >> kind(1))  # in its first place, see `_scratch`
    most = values[0]
    if not most < np.inf:
        return np.float32(0), True
    if most < SMALLEST:
        return np.float32(0), False
    exact = np.float32(most / levels).view(np.uint32)
    up = np.uint32((exact + LOW_HALF) & ~LOW_HALF).view(np.float32)
    return min(up, largest), False


@njit(cache=True, nogil=True, inline="always")
def _nearest(values: Array, inverse: Any, levels: Any, codes: Array) -> None:
    half, one = values.dtype.type(0.5), values.dtype.type(1)
    for i in range(values.size):
        height = values[i] * inverse
        floor = np.floor(height)
        code = floor + one if height - floor > half else floor
        codes[i] = np.int8(min(max(code, -levels), levels))


@njit(cache=True, nogil=True)
def _at_random(
    values: Array, inverse: Any, levels: Any, codes: Array, first: int, offset: np.uint64
) -> None:
    one = values.dtype.type(1)
    for i in range(values.size):
        height = values[i] * inverse
        floor = np.floor(height)
        drawn = np.float32(np.int32(mix(np.uint64(first + i), offset) >> LOW_BITS)) * GRAIN
        code = floor + one if height - floor > drawn else floor
        codes[i] = np.int8(min(max(code, -levels), levels))


@njit(cache=True, nogil=True, inline="always")
def copy(source: Array, target: Array) -> None:
    """As many as fit. `target[:] = source` takes seconds to compile: it can tell of odd shapes."""
    for i in range(target.size):
        target[i] = source[i]


@njit(cache=True, nogil=True, inline="always")
def fill(source: Array, target: Array) -> None:
    """A group that may be short, and zeros behind it."""
    copy(source, target[: source.size])
    for i in range(source.size, target.size):
        target[i] = 0


@njit(cache=True, nogil=True)
def _hadamard(values: Array, spare: Array) -> None:
    """Always neighbours, whose sums go to the front and whose differences to the back.

    That turns the bits of an index by one, and by all of them in the end (Pease, 1968): the same
    sums as of pairs at a distance of 1, 2, 4 …, but every turn is one long loop.
    """
    half, size = values.size // 2, 1
    source, target = values, spare
    while size < values.size:
        for i in range(half):
            first, second = source[2 * i], source[2 * i + 1]
            target[i] = first + second
            target[half + i] = first - second
        source, target = target, source
        size *= 2
    copy(source, values)


@njit(cache=True, nogil=True)
def _flip(values: Array, first: int, offset: np.uint64) -> None:
    kind = values.dtype.type
    for i in range(values.size):
        negative = np.int32(mix(np.uint64(first + i), offset) >> SIGN_BIT)
        values[i] *= kind(1) - kind(2) * kind(negative)


@njit(cache=True, nogil=True)
def rotate(values: Array, spare: Array, first: int, seeds: Seeds) -> None:
    """H·D·x of a group whose first element is number `first`, in place."""
    if seeds[2]:
        _flip(values, first, seeds[3])
        _hadamard(values, spare)


@njit(cache=True, nogil=True)
def rotate_back(values: Array, spare: Array, first: int, seeds: Seeds) -> None:
    """The inverse of `rotate`."""
    if seeds[2]:
        _hadamard(values, spare)
        share = values.dtype.type(1) / values.dtype.type(values.size)
        for i in range(values.size):
            values[i] *= share
        _flip(values, first, seeds[3])


@njit(cache=True, nogil=True, inline="always")
def round_group(
    scratch: Array, words: Array, codes: Array, first: int, levels: Any, largest: np.float32,
    seeds: Seeds,
) -> Any:  # fmt: skip
    """Codes of the group in `scratch`, which keeps what they lack; the scale, and if it is bad."""
    values, kind = scratch[1:], scratch.dtype.type
    scale, bad = _scale_of(scratch, words, levels, largest)
    if bad:
        values[:] = 0
    if not scale > 0:
        codes[:] = 0
        return scale, bad
    wide = kind(scale)
    if seeds[0]:
        _at_random(values, kind(1) / wide, levels, codes, first, seeds[1])
    else:
        _nearest(values, kind(1) / wide, levels, codes)
    for i in range(values.size):
        values[i] -= kind(codes[i]) * wide
    return scale, bad


@njit(cache=True, nogil=True, inline="always")
def pack(codes: Array, bytes: Array, halves: bool) -> None:
    if halves:
        for i in range(bytes.size):
            bytes[i] = (codes[2 * i] & 15) | ((codes[2 * i + 1] & 15) << 4)
    else:
        for i in range(bytes.size):
            bytes[i] = codes[i]


@njit(cache=True, nogil=True, inline="always")
def unpack(bytes: Array, codes: Array, halves: bool) -> None:
    if halves:
        for i in range(bytes.size):
            codes[2 * i] = np.int8(np.int8(bytes[i] << 4) >> 4)
            codes[2 * i + 1] = np.int8(bytes[i]) >> 4
    else:
        for i in range(bytes.size):
            codes[i] = np.int8(bytes[i])


@njit(cache=True, nogil=True, inline="always")
def stored(scale: np.float32, bad: bool) -> np.uint16:
    return NAN if bad else np.uint16(np.float32(scale).view(np.uint32) >> S16)


@njit(cache=True, nogil=True, inline="always")
def widened(scale: np.uint16) -> np.float32:
    return np.uint32(np.uint32(scale) << S16).view(np.float32)


@njit(cache=True, nogil=True)
def settle(
    mine: Array, before: Array, values: Array, spare: Array, codes: Array, scale: np.float32,
    strange: bool, first: int, seeds: Seeds,
) -> None:  # fmt: skip
    """Leave in `mine` what the codes lack of what was there `before`."""
    if strange:
        mine[:] = 0
        return
    if not seeds[2]:
        copy(values, mine)
        return
    wide = values.dtype.type(scale)
    for i in range(values.size):
        values[i] = values.dtype.type(codes[i]) * wide
    rotate_back(values, spare, first, seeds)
    for i in range(mine.size):
        mine[i] = before[i] - values[i]
