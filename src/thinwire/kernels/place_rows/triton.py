"""Placing on CUDA: one launch."""

import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import divide

BLOCK = 512


@triton.jit(do_not_specialize=["count", "numel", "stride", "divisor"])
def _place(indices, values, out, count, numel, stride, divisor, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + row * count + i, mask=i < count, other=numel)
    there = index < numel
    value = tl.load(values + row * stride + i, mask=there, other=0)
    value = divide(value, divisor.to(value.dtype))
    tl.store(out + index, value.to(out.dtype.element_ty), mask=there)


def place_rows(indices: Tensor, values: Tensor, out: Tensor, divisor: int) -> Tensor:
    (rows, count), stride = indices.shape, values.stride(0)
    grid = (triton.cdiv(count, BLOCK), rows)
    if indices.numel():
        _place[grid](
            indices, values, out, count, out.numel(), stride, divisor, BLOCK, num_warps=4
        )  # fmt: skip
    return out
