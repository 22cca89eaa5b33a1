"""Settling on CUDA: one launch; indices are distinct, so that nobody meets at an element."""

import triton
import triton.language as tl
from torch import Tensor

from thinwire.types import Sparse

BLOCK = 1024


@triton.jit(do_not_specialize=["count", "numel"])
def _settle(indices, values, residual, velocity, count, numel, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + i, mask=i < count, other=numel)
    there = index < numel  # behind it is padding
    value = tl.load(values + i, mask=there, other=0)
    value = tl.where(tl.abs(value) < float("inf"), value, 0)
    before = tl.load(residual + index, mask=there, other=0)
    tl.store(residual + index, before - value, mask=there)
    if velocity is not None:
        tl.store(velocity + index, tl.zeros_like(value), mask=there)


def settle(delivered: Sparse, residual: Tensor, velocity: Tensor | None) -> None:
    count = delivered.count
    if count:
        _settle[(triton.cdiv(count, BLOCK),)](
            delivered.indices.contiguous(), delivered.values.contiguous(), residual, velocity,
            count, residual.numel(), BLOCK, num_warps=4,
        )  # fmt: skip
