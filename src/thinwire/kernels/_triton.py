"""What the Triton kernels share: tiles of elements, marks of what passed, the integer hash.

A tile is read as rows of 32 elements. Which of a row passed a threshold is one 32-bit word, its
*mark*: packing it takes three shuffles, and whatever comes after looks at one word for 32
elements. Survivors are rare, so that costs nothing beside reading the elements.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire import rng
from thinwire.kernels.addend import Addend
from thinwire.kernels.kept import kept
from thinwire.rng import MIX_MULTIPLIERS, MIX_SHIFTS, as_signed

ROW = tl.constexpr(32)  # elements a mark

_FIRST_FACTOR, _SECOND_FACTOR = (tl.constexpr(factor) for factor in MIX_MULTIPLIERS)
_FIRST_SHIFT, _SECOND_SHIFT, _LAST_SHIFT = (tl.constexpr(shift) for shift in MIX_SHIFTS)


def tiling(x: Tensor, warps: int) -> tuple[int, int]:
    """How many tiles `x` has, and their rows: each thread has 128 bytes of `x` in flight."""
    rows = 128 * warps // x.element_size()
    return max(1, triton.cdiv(x.numel(), rows * ROW.value)), rows


def summands(
    x: Tensor, addend: Addend | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Gradient, velocity, factor and flag for `accumulated`; the factor keeps float64's bits.

    A device writes without reading: whoever launches clears the gradient afterwards.
    """
    if addend is None:
        return None, None, None, None
    if addend.velocity is None:
        return addend.grad, None, None, addend.bad
    factor = constant(addend.factor, x.dtype, x.device)
    return addend.grad, addend.velocity, factor, addend.bad


@kept(256)
def constant(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """In memory, since an argument would be float32; kept, since making it is a launch."""
    return torch.full((), value, dtype=dtype, device=device)


def mix_offset(seed: int) -> int:
    """What `rng.mix64` adds to a number before it mixes it."""
    return as_signed(rng.mix_offset(seed))


@triton.jit
def mix64(x, offset):
    """`rng.mix64` as uint64; `offset` is the `mix_offset` of the seed."""
    x = x.to(tl.uint64) + offset.to(tl.uint64)
    x = (x ^ (x >> _FIRST_SHIFT)) * _FIRST_FACTOR
    x = (x ^ (x >> _SECOND_SHIFT)) * _SECOND_FACTOR
    return x ^ (x >> _LAST_SHIFT)


@triton.jit
def hash_to_range(x, size, offset):
    """`rng.hash_to_range` as int64."""
    return (((mix64(x, offset) >> 33) * size.to(tl.uint64)) >> 31).to(tl.int64)


@triton.jit
def magnitude_key(x):
    """Unsigned integers in the order of |x|: its bits, the sign shifted out."""
    if x.dtype == tl.float64:
        key = x.to(tl.uint64, bitcast=True) << 1
    else:
        key = x.to(tl.uint32, bitcast=True) << 1
    return key


@triton.jit
def divide(a, b):
    """Rounded to nearest, as IEEE 754 has it: Triton's own division of float32 is not."""
    return tl.div_rn(a, b) if a.dtype == tl.float32 else a / b


@triton.jit
def ones(word):
    """How many bits of a uint32 are set (Warren, Hacker's Delight, section 5-1), as int32."""
    word -= (word >> 1) & 0x55555555
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return ((word * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def lowest(word):
    """The place of the lowest set bit."""
    return ones((word - 1) & ~word)


@triton.jit
def load_tile(pointer, at, left, EVICTION: tl.constexpr, first=0):
    """The elements `at` places from `pointer`, zero before the `first` and from the `left`-th on.

    Whole tiles are read without a mask, which would forbid 16-byte loads where the number of
    elements is odd.
    """
    if _whole(at, left, first):
        tile = tl.load(pointer + at, eviction_policy=EVICTION)
    else:
        tile = tl.load(pointer + at, mask=(at >= first) & (at < left), other=0)
    return tile


@triton.jit
def store_tile(pointer, at, left, tile, first=0):
    """The counterpart of `load_tile`."""
    if _whole(at, left, first):
        tl.store(pointer + at, tile)
    else:
        tl.store(pointer + at, tile, mask=(at >= first) & (at < left))


@triton.jit
def _whole(at, left, first):
    return (left >= at.numel) & (first <= 0)


@triton.jit
def accumulated_tile(x, grad, velocity, factor, bad, numel, ROWS: tl.constexpr):
    """This program's tile of `x`, as `accumulated`."""
    start = tl.program_id(0).to(tl.int64) * (ROWS * ROW)
    return accumulated(x, grad, velocity, factor, bad, start, numel - start, ROWS)


@triton.jit
def accumulated(x, grad, velocity, factor, bad, start, left, ROWS: tl.constexpr, first=0):
    """The tile of `x` at `start`, after what was to be added to it was added and stored.

    Of its elements those from the `first` to the `left`-th; others are zero, and stay as they are.
    `velocity`, or both it and `grad`, may be None, and so may `bad`. Each operation is rounded to
    the accumulator's precision, as torch's in-place operations are: with a velocity, launch
    without fused multiply-add. The hint makes a plain read 7 % faster, and one that stores as well
    5 % slower.
    """
    at = tl.arange(0, ROWS)[:, None] * ROW + tl.arange(0, ROW)[None, :]
    if grad is None:
        tile = load_tile(x + start, at, left, "evict_first", first)
    else:
        tile = load_tile(x + start, at, left, "", first)
        step = load_tile(grad + start, at, left, "", first)
        if bad is not None:
            step = finite_only(step, bad)
        if velocity is not None:
            before = load_tile(velocity + start, at, left, "", first)
            step = (before * tl.load(factor) + step).to(tile.dtype)
            store_tile(velocity + start, at, left, step, first)
        tile = (tile + step).to(tile.dtype)
        store_tile(x + start, at, left, tile, first)
    return tile


@triton.jit
def finite_only(step, bad):
    """Zero where the gradient is not finite; the flag is set if it is anywhere so."""
    if step.dtype.primitive_bitwidth < 32:
        step = step.to(tl.float32)
    finite = tl.abs(step) < float("inf")
    if tl.max(tl.max(tl.where(finite, 0, 1), axis=1), axis=0) > 0:
        tl.store(bad, 1)
    return tl.where(finite, step, 0.0).to(step.dtype)


@triton.jit
def marks(tile, threshold):
    """For each row which of its elements reach the threshold, as uint32. Zero and NaN never do."""
    limit = tl.load(threshold)
    magnitudes = tl.abs(tile)
    passed = (magnitudes >= limit) & (magnitudes > 0)
    return tl.sum(passed.to(tl.uint32) << tl.arange(0, ROW)[None, :].to(tl.uint32), axis=1)
