"""Guesses on CUDA: one launch each."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import divide
from thinwire.kernels.next_guess.form import LEAST_CHANGE, LEAST_GAP, MOST_CHANGE, MOST_GAP

BLOCK = 256
_LEAST_CHANGE, _MOST_CHANGE = tl.constexpr(LEAST_CHANGE), tl.constexpr(MOST_CHANGE)
_LEAST_GAP, _MOST_GAP = tl.constexpr(LEAST_GAP), tl.constexpr(MOST_GAP)


@triton.jit(do_not_specialize=["rows", "groups"])
def _guess(threshold, gap, guesses, rows, groups, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = i < rows
    lowered = 1 - tl.load(gap + i, mask=there, other=0)
    lowered = tl.load(threshold + i, mask=there, other=0) * lowered
    tl.store(guesses + i, tl.where(there, lowered, 0), mask=i < groups)


@triton.jit
def _between(x, LEAST: tl.constexpr, MOST: tl.constexpr, BLOCK: tl.constexpr):
    """Bounds of the dtype of `x`: a plain number would be of float32."""
    least = tl.full((BLOCK,), LEAST, x.dtype)
    most = tl.full((BLOCK,), MOST, x.dtype)
    return tl.minimum(tl.maximum(x, least), most)


@triton.jit(do_not_specialize=["rows"])
def _learn(threshold, gap, kth, passed, wanted, rows, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = i < rows
    before = tl.load(gap + i, mask=there, other=0)
    found = tl.maximum(tl.load(passed + i, mask=there, other=1), 1).to(before.dtype)
    off = divide(tl.load(wanted + i, mask=there, other=0), found)
    off = _between(off, _LEAST_CHANGE, _MOST_CHANGE, BLOCK)
    tl.store(gap + i, _between(before * off, _LEAST_GAP, _MOST_GAP, BLOCK), mask=there)
    tl.store(threshold + i, tl.load(kth + i, mask=there, other=0), mask=there)


def guess(threshold: Tensor, gap: Tensor, groups: int) -> Tensor:
    guesses = torch.empty(groups, dtype=gap.dtype, device=gap.device)
    if groups:
        _guess[(triton.cdiv(groups, BLOCK),)](
            threshold, gap, guesses, gap.numel(), groups, BLOCK,
            num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
    return guesses


def learn(threshold: Tensor, gap: Tensor, kth: Tensor, passed: Tensor, wanted: Tensor) -> None:
    if rows := gap.numel():
        _learn[(triton.cdiv(rows, BLOCK),)](
            threshold, gap, kth, passed, wanted, rows, BLOCK, num_warps=4, enable_fp_fusion=False
        )
