"""Adding up on CUDA, in a few plain launches:

1. Each element looks for its index in every list: so it knows the sum, whether it is the first
   that has this index, and its place in the order of all. A histogram counts the sums' keys.
2. From the histogram every piece of the line knows the key of the last sum to be taken, and counts
   what is larger and what is equal.
3. So each piece knows its place in the result, and writes it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._lists import count_below, sum_before
from thinwire.kernels._triton import magnitude_key
from thinwire.kernels.largest_sums.reference import KEY_BITS
from thinwire.types import PADDING

PIECE = 512  # elements that a program looks at
WARPS = 4
BINS = tl.constexpr(1 << (KEY_BITS // 2))
HALF = tl.constexpr(KEY_BITS // 2)
SCRATCH = 1 + (1 << (KEY_BITS // 2)) + (1 << KEY_BITS)  # a flag, keys by their upper half, and all
_KEY_BITS = tl.constexpr(KEY_BITS)
_PADDING = tl.constexpr(PADDING)


@triton.jit
def _key(sums):
    BITS: tl.constexpr = sums.dtype.primitive_bitwidth
    return (magnitude_key(sums) >> (BITS - _KEY_BITS)).to(tl.int32)


@triton.jit(do_not_specialize=["parts", "room", "stride", "steps"])
def _merge(indices, values, merged, sums, scratch, parts, room, stride, steps, PIECE: tl.constexpr):
    part = tl.program_id(1)
    i = tl.program_id(0).to(tl.int64) * PIECE + tl.arange(0, PIECE)
    index = tl.load(indices + part.to(tl.int64) * room + i, mask=i < room, other=_PADDING)
    place = i
    total = tl.zeros((PIECE,), sums.dtype.element_ty)
    counts = (i < room) & (index != _PADDING)
    marked = i < 0
    row = tl.zeros((), tl.int64)  # where the other list begins, and where its values do
    value_row = row
    for other in range(parts):
        at = count_below(indices + row, room, index, steps)
        same = (at < room) & (tl.load(indices + row + at, mask=at < room, other=0) == index)
        value = tl.load(values + value_row + at, mask=same, other=0)
        marked |= value != value
        total += tl.where(value == value, value, 0)
        if other < part:
            counts &= same == 0
            at = tl.where(index == _PADDING, room, at + same.to(tl.int64))
        place += tl.where(other == part, 0, at)
        row += room
        value_row += stride
    total = tl.where(counts, total, 0)
    tl.store(merged + place, index, mask=i < room)
    tl.store(sums + place, total, mask=i < room)
    if tl.max(marked.to(tl.int32)) > 0:
        tl.store(scratch, 1)
    key = _key(total)
    upper = tl.histogram(key >> HALF, BINS, mask=total != 0)
    tl.atomic_add(scratch + 1 + tl.arange(0, BINS), upper, mask=upper > 0, sem="relaxed")
    tl.atomic_add(scratch + 1 + BINS + key, 1, mask=total != 0, sem="relaxed")


@triton.jit
def _bin(counts, wanted):
    """In which bin the last of the `wanted` largest lies, and how many of this bin are wanted."""
    bins = tl.arange(0, BINS)
    count = tl.load(counts + bins)
    at_least = tl.sum(count) - tl.cumsum(count) + count
    found = tl.maximum(tl.sum((at_least >= wanted).to(tl.int32)) - 1, 0)
    return found, wanted - tl.sum(tl.where(bins > found, count, 0))


@triton.jit
def _compared(sums, scratch, i, size, wanted):
    """The sums at `i`, which are larger than the last one taken, which equal it, and how many of
    these are taken."""
    upper, rest = _bin(scratch + 1, wanted)
    lower, ties = _bin(scratch + 1 + BINS + upper * BINS, rest)
    last = upper * BINS + lower
    value = tl.load(sums + i, mask=i < size, other=0)
    key = _key(value)
    return value, (value != 0) & (key > last), (value != 0) & (key == last), ties


@triton.jit(do_not_specialize=["size", "wanted"])
def _count(sums, scratch, tallies, size, wanted, PIECE: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * PIECE + tl.arange(0, PIECE)
    _value, larger, equal, _ties = _compared(sums, scratch, i, size, wanted)
    tl.store(tallies + tl.program_id(0), tl.sum(larger.to(tl.int32)))
    tl.store(tallies + tl.num_programs(0) + tl.program_id(0), tl.sum(equal.to(tl.int32)))


@triton.jit(do_not_specialize=["size", "wanted"])
def _emit(
    merged, sums, scratch, tallies, indices, values, size, wanted, PIECE: tl.constexpr
):  # fmt: skip
    piece, pieces = tl.program_id(0), tl.num_programs(0)
    i = piece.to(tl.int64) * PIECE + tl.arange(0, PIECE)
    value, larger, equal, ties = _compared(sums, scratch, i, size, wanted)
    ties_before = sum_before(tallies + pieces, piece, PIECE)
    before = sum_before(tallies, piece, PIECE) + tl.minimum(ties_before, ties)
    here = equal.to(tl.int32)
    taken = (larger | (equal & (ties_before + tl.cumsum(here) - here < ties))).to(tl.int32)
    place = before + tl.cumsum(taken) - taken
    mark = tl.load(scratch) > 0
    value = tl.where(mark & (place == 0), float("nan"), value)
    tl.store(indices + place, tl.load(merged + i, mask=taken > 0, other=0), mask=taken > 0)
    tl.store(values + place, value, mask=taken > 0)
    if piece == pieces - 1:
        for start in range(before + tl.sum(taken), wanted, PIECE):
            at = start + tl.arange(0, PIECE)
            tl.store(indices + at, tl.full((PIECE,), _PADDING, tl.int64), mask=at < wanted)
            nothing = tl.where(mark & (at == 0), float("nan"), 0.0)
            tl.store(values + at, nothing.to(values.dtype.element_ty), mask=at < wanted)


def largest_sums(indices: Tensor, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    (parts, room), device = indices.shape, indices.device
    size = parts * room
    merged, sums = (torch.empty(size, dtype=x.dtype, device=device) for x in (indices, values))
    scratch = torch.zeros(SCRATCH, dtype=torch.int32, device=device)
    grid = (triton.cdiv(room, PIECE), parts)
    _merge[grid](
        indices.contiguous(), values, merged, sums, scratch, parts, room, values.stride(0),
        room.bit_length(), PIECE, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    pieces = triton.cdiv(size, PIECE)
    tallies = torch.empty(2 * pieces, dtype=torch.int32, device=device)
    _count[(pieces,)](sums, scratch, tallies, size, count, PIECE, num_warps=WARPS)
    chosen = (
        torch.empty(count, dtype=torch.int64, device=device),
        torch.empty(count, dtype=values.dtype, device=device),
    )
    _emit[(pieces,)](
        merged, sums, scratch, tallies, *chosen, size, count, PIECE, num_warps=WARPS
    )  # fmt: skip
    return chosen
