"""Stochastic rounding on CUDA: one pass, the random number never leaves its register."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import mix64, mix_offset

BLOCK = 1024


@triton.jit
def rounded(height, i, offset):
    """`height` ≥ 0 at place `i` of the stream, rounded at random, as int32."""
    drawn = (mix64(i, offset) >> 40).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08  # 2^-24
    floor = height.to(tl.int32)
    up = drawn < height - floor.to(height.dtype)
    return floor + up.to(tl.int32)


@triton.jit(do_not_specialize=["count", "offset"])
def _quantise(heights, out, count, offset, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    height = tl.load(heights + i, mask=i < count, other=0)
    tl.store(out + i, rounded(height, i, offset), mask=i < count)


def quantise(heights: Tensor, seed: int) -> Tensor:
    out = torch.empty(heights.numel(), dtype=torch.int32, device=heights.device)
    if heights.numel():
        grid = (triton.cdiv(heights.numel(), BLOCK),)
        _quantise[grid](heights, out, heights.numel(), mix_offset(seed), BLOCK)
    return out
