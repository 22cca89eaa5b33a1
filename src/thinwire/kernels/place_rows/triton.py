"""Placing on CUDA: one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import divide

BLOCK = 512


@triton.jit(do_not_specialize=["rows", "count", "numel", "stride", "divisor"])
def _place(
    indices, values, out, marked, rows, count, numel, stride, divisor,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + row * count + i, mask=i < count, other=numel)
    there = index < numel
    value = tl.load(values + row * stride + i, mask=there, other=0)
    value = divide(value, divisor.to(value.dtype))
    tl.store(out + index, value.to(out.dtype.element_ty), mask=there)
    if (row == 0) & (tl.program_id(0) == 0):
        which = tl.arange(0, ROWS).to(tl.int64)
        first = tl.load(values + which * stride, mask=which < rows, other=0)
        tl.store(marked, tl.max((first != first).to(tl.int64)))


def place_rows(indices: Tensor, values: Tensor, out: Tensor, divisor: int) -> Tensor:
    (rows, count), stride = indices.shape, values.stride(0)
    marked = torch.empty((), dtype=torch.int64, device=out.device)
    _place[(triton.cdiv(count, BLOCK), rows)](
        indices, values, out, marked, rows, count, out.numel(), stride, divisor,
        triton.next_power_of_2(rows), BLOCK, num_warps=4,
    )  # fmt: skip
    return marked
