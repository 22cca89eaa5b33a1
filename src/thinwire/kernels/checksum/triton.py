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


@triton.jit(do_not_specialize=["count", "first", "stride", "apart"])
def _add_up(words, total, count, first, begin, stride, apart, offset, BLOCK: tl.constexpr):
    """`first` is a number, or else `begin` is where one lies; totals are so many words `apart`."""
    if begin is not None:
        first = tl.load(begin)
    row = tl.program_id(1).to(tl.int64)
    words += row * stride
    total += row * apart
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(words + i, mask=i < count, other=0).to(tl.uint64, bitcast=True)
    weighted = (word ^ (word >> 32)) * (mix64(first + i, offset) | 1)
    tl.atomic_add(total, tl.sum(weighted.to(tl.int64, bitcast=True)), sem="relaxed")


def checksum(words: Tensor, first: int = 0) -> Tensor:
    return checksum_rows(words[None], first).view(())


def checksum_rows(words: Tensor, first: Seed = 0) -> Tensor:
    totals = torch.zeros(len(words), dtype=torch.int64, device=words.device)
    add_checksums(words, totals, first)
    return totals


def add_checksums(words: Tensor, totals: Tensor, first: Seed = 0) -> None:
    """Add each row's checksum to its total; these may lie apart too."""
    rows, count = words.shape
    if count:
        grid, strides = (triton.cdiv(count, BLOCK), rows), (words.stride(0), totals.stride(0))
        number, begin = (0, first) if isinstance(first, Tensor) else (first, None)
        _add_up[grid](words, totals, count, number, begin, *strides, OFFSET, BLOCK, num_warps=WARPS)
