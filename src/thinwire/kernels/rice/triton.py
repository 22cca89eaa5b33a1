"""Rice's numbers on CUDA: only remainders need a running sum.

Gaps add up to index_i - i. Without their remainders r they are the high parts, so that

    number_i = index_i - i - (r_0 + … + r_i) + r_i.

One launch adds up the remainders of each program's share, a second goes over the same shares again
and begins each with what those before it left (see `bitmap.triton`).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.bitmap.triton import SHARES, share_of, sum_before

BLOCK = 1024


@triton.jit
def _gap(indices, i, size):
    before = tl.load(indices + i - 1, mask=(i > 0) & (i < size), other=-1)
    return tl.load(indices + i, mask=i < size, other=0) - before - 1


@triton.jit
def _remainder(x, i, size, low_bits, ENCODES: tl.constexpr):
    """Of the gaps before the indices `x`, or of the numbers `x`."""
    number = _gap(x, i, size) if ENCODES else tl.load(x + i, mask=i < size, other=0)
    return tl.where(i < size, number & ((tl.full((), 1, tl.int64) << low_bits) - 1), 0)


@triton.jit(do_not_specialize=["size", "low_bits"])
def _add_up(x, sums, size, low_bits, ENCODES: tl.constexpr, BLOCK: tl.constexpr):
    first, end = share_of(size, BLOCK)
    total = tl.zeros((BLOCK,), tl.int64)
    for start in range(first, end, BLOCK):
        total += _remainder(x, start + tl.arange(0, BLOCK), size, low_bits, ENCODES)
    tl.store(sums + tl.program_id(0), tl.sum(total))


@triton.jit(do_not_specialize=["size", "low_bits"])
def _from_indices(indices, sums, numbers, sound, size, low_bits, BLOCK: tl.constexpr):
    first, end = share_of(size, BLOCK)
    before = sum_before(sums)
    for start in range(first, end, BLOCK):
        i = start + tl.arange(0, BLOCK)
        rest = _remainder(indices, i, size, low_bits, True)
        index = tl.load(indices + i, mask=i < size, other=0)
        number = index - i - (before + tl.cumsum(rest)) + rest
        tl.store(numbers + i, number, mask=i < size)
        if tl.min(tl.where(i < size, _gap(indices, i, size), 0)) < 0:
            tl.store(sound, False)
        before += tl.sum(rest)


@triton.jit(do_not_specialize=["size", "low_bits", "rows"])
def _to_indices(numbers, sums, indices, sound, size, low_bits, rows, BLOCK: tl.constexpr):
    """A sum that passes 2^63 shows: it makes an index below the one before it."""
    first, end = share_of(size, BLOCK)
    before = sum_before(sums)
    keep = (tl.full((), 1, tl.int64) << low_bits) - 1
    for start in range(first, end, BLOCK):
        i = start + tl.arange(0, BLOCK)
        number = tl.load(numbers + i, mask=i < size, other=0)
        rest = number & keep
        index = (number - rest) + (before + tl.cumsum(rest)) + i
        tl.store(indices + i, index, mask=i < size)
        high = tl.load(numbers + i - 1, mask=(i > 0) & (i < size), other=0) & ~keep
        gap = ((number - rest) - high) | rest
        bad = (gap < 0) | (index < 0) | (index >= rows)
        if tl.max((bad & (i < size)).to(tl.int32)) > 0:
            tl.store(sound, False)
        before += tl.sum(rest)


def _run(x: Tensor, low_bits: int, encodes: bool, *rows: int) -> tuple[Tensor, Tensor]:
    out, size = torch.empty_like(x), x.numel()
    sound = torch.ones((), dtype=torch.bool, device=x.device)
    if size:
        grid = (min(SHARES.value, triton.cdiv(size, BLOCK)),)
        sums = torch.empty(grid, dtype=torch.int64, device=x.device)
        _add_up[grid](x, sums, size, low_bits, encodes, BLOCK)
        second = _from_indices if encodes else _to_indices
        second[grid](x, sums, out, sound, size, low_bits, *rows, BLOCK)
    return out, sound


def from_indices(indices: Tensor, low_bits: int) -> tuple[Tensor, Tensor]:
    return _run(indices, low_bits, True)


def to_indices(numbers: Tensor, low_bits: int, rows: int) -> tuple[Tensor, Tensor]:
    return _run(numbers, low_bits, False, rows)
