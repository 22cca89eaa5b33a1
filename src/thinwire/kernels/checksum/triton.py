"""The checksum on CUDA: one pass. Integer sums wrap: atomic adds come out alike in any order."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import mix64, mix_offset
from thinwire.kernels.checksum.reference import SEED
from thinwire.rng import Seed

BLOCK = 2048
WARPS = 8
OFFSET = mix_offset(SEED)


@triton.jit(do_not_specialize=["count", "first", "stride"])
def _add_up(words, total, count, first, begin, stride, offset, BLOCK: tl.constexpr):
    """`first` is a number, or else `begin` is where one lies."""
    if begin is not None:
        first = tl.load(begin)
    row = tl.program_id(1).to(tl.int64)
    words += row * stride
    total += row
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(words + i, mask=i < count, other=0).to(tl.uint64, bitcast=True)
    weighted = (word ^ (word >> 32)) * (mix64(first + i, offset) | 1)
    tl.atomic_add(total, tl.sum(weighted.to(tl.int64, bitcast=True)), sem="relaxed")


def checksum(words: Tensor, first: int = 0) -> Tensor:
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    if words.numel():
        grid = (triton.cdiv(words.numel(), BLOCK), 1)
        _add_up[grid](words, total, words.numel(), first, None, 0, OFFSET, BLOCK, num_warps=WARPS)
    return total


def checksum_rows(words: Tensor, first: Seed = 0) -> Tensor:
    rows, count = words.shape
    totals = torch.zeros(rows, dtype=torch.int64, device=words.device)
    if count:
        grid, stride = (triton.cdiv(count, BLOCK), rows), words.stride(0)
        number, begin = (0, first) if isinstance(first, Tensor) else (first, None)
        _add_up[grid](words, totals, count, number, begin, stride, OFFSET, BLOCK, num_warps=WARPS)
    return totals
