"""What the Triton kernels for ordered lists share: places in a list, and what comes before it."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# What a device function takes are tiles and pointers.

import triton
import triton.language as tl


@triton.jit
def count_below(ascending, size, wanted, steps):
    """How many of the `size` elements of `ascending` are below each `wanted` (int64).

    The list is halved, by all lanes in step; `steps` is size.bit_length().
    """
    low = wanted * 0
    high = low + size
    for _ in range(steps):
        middle = (low + high) >> 1
        here = low < high
        below = tl.load(ascending + middle, mask=here, other=0) < wanted
        low = tl.where(here & below, middle + 1, low)
        high = tl.where(here & (below == 0), middle, high)
    return low


@triton.jit
def sum_before(counts, end, BLOCK: tl.constexpr):
    """counts[0] + … + counts[end - 1], as int64."""
    total = tl.zeros((BLOCK,), tl.int64)
    for start in range(0, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(counts + at, mask=at < end, other=0)
    return tl.sum(total)
