"""Norms of blocks on CUDA: a program reads a few whole blocks, squares are summed in float64."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# What a kernel takes are tensors and numbers.

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import finite_only
from thinwire.kernels.addend import Addend

TILE = 8192  # elements a program, where blocks are not larger than that
WARPS = 8


@triton.jit(do_not_specialize=["numel"])
def _norms(x, grad, bad, norms, numel, block, BLOCKS: tl.constexpr, WIDTH: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCKS
    which = first + tl.arange(0, BLOCKS)
    total = tl.zeros((BLOCKS,), tl.float64)
    for start in range(0, block, WIDTH):
        column = start + tl.arange(0, WIDTH)
        at = which[:, None] * block + column[None, :]
        inside = (column[None, :] < block) & (at < numel)
        whole = (start + WIDTH <= block) & ((first + BLOCKS) * block <= numel)
        tile = _load(x + at, inside, whole)
        if grad is not None:
            step = _load(grad + at, inside, whole)
            if bad is not None:
                step = finite_only(step, bad)
            tile = (tile + step).to(tile.dtype)
            if whole:
                tl.store(x + at, tile)
            else:
                tl.store(x + at, tile, mask=inside)
        wide = tile.to(tl.float64)
        total += tl.sum(wide * wide, axis=1)
    norm = tl.sqrt(total).to(norms.dtype.element_ty)
    tl.store(norms + which, norm, mask=which * block < numel)


@triton.jit
def _load(pointer, inside, whole):
    """Without a mask where there need be none: one would forbid 16-byte loads."""
    if whole:  # noqa: SIM108 - a branch, as the kernel has it
        tile = tl.load(pointer)
    else:
        tile = tl.load(pointer, mask=inside, other=0)
    return tile


def block_norms(x: Tensor, block: int, addend: Addend | None = None) -> Tensor:
    if addend and (addend.velocity is not None or addend.grad.dtype != x.dtype):
        addend.add_to(x)  # in the kernel, other loads would change the order of the sums
        addend = None
    norms = torch.empty(triton.cdiv(x.numel(), block), dtype=x.dtype, device=x.device)
    if norms.numel():
        width = min(triton.next_power_of_2(block), TILE)
        blocks = TILE // width
        grid = (triton.cdiv(norms.numel(), blocks),)
        summands = (addend.grad, addend.bad) if addend else (None, None)
        _norms[grid](x, *summands, norms, x.numel(), block, blocks, width, num_warps=WARPS)
    if addend:
        addend.clear_gradient()
    return norms
