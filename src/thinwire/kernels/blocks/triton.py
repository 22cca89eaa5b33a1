"""Blocks on CUDA: a launch to gather them, and one to put them back."""

import torch
import triton
import triton.language as tl
from torch import Tensor

LANES = 1024


@triton.jit(do_not_specialize=["count", "numel"])
def _place(blocks, count, numel, BLOCK: tl.constexpr, LANES: tl.constexpr):
    """The lanes of this program, where each belongs in the tensor, and whether it is there."""
    lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    number = tl.load(blocks + lane // BLOCK, mask=lane < count, other=numel)
    index = number * BLOCK + lane % BLOCK
    return lane, index, index < numel


@triton.jit(do_not_specialize=["count", "numel"])
def _gather(x, blocks, values, count, numel, BLOCK: tl.constexpr, LANES: tl.constexpr):
    lane, index, there = _place(blocks, count, numel, BLOCK, LANES)
    tl.store(values + lane, tl.load(x + index, mask=there, other=0), mask=lane < count)


@triton.jit(do_not_specialize=["count", "numel"])
def _scatter(values, blocks, out, count, numel, BLOCK: tl.constexpr, LANES: tl.constexpr):
    lane, index, there = _place(blocks, count, numel, BLOCK, LANES)
    value = tl.load(values + lane, mask=there, other=0)
    tl.store(out + index, value.to(out.dtype.element_ty), mask=there)


def gather_blocks(x: Tensor, blocks: Tensor, block: int) -> Tensor:
    count = blocks.numel() * block
    values = torch.empty(count, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(count, LANES),)
    if count:
        _gather[grid](x, blocks, values, count, x.numel(), block, LANES, num_warps=4)
    return values


def scatter_blocks(values: Tensor, blocks: Tensor, block: int, out: Tensor) -> Tensor:
    count = blocks.numel() * block
    grid = (triton.cdiv(count, LANES),)
    if count:
        _scatter[grid](values, blocks, out, count, out.numel(), block, LANES, num_warps=4)
    return out
