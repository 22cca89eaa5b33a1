"""Narrowing on CUDA: one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit(do_not_specialize=["count", "stride", "out_stride"])
def _narrow(
    values, out, count, stride, out_stride, LIMIT: tl.constexpr, BRAIN: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The bits of halves, or of BRAIN floats: these rounded by hand, so that it can be tested.

    Triton's interpreter cuts them off. Float64 goes by way of float32, as torch has it.
    """
    row = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + row * stride + i, mask=i < count, other=0)
    limit = tl.full((BLOCK,), LIMIT, value.dtype)
    clamped = tl.where(value > limit, limit, tl.where(value < -limit, -limit, value))
    value = tl.where(tl.abs(value) < float("inf"), clamped, value).to(tl.float32)
    if BRAIN:
        word = value.to(tl.uint32, bitcast=True)
        word = (word + 0x7FFF + ((word >> 16) & 1)) >> 16  # ties to even
        bits = tl.where(value == value, word, 0x7FC0).to(tl.int16)
    else:
        bits = value.to(tl.float16).to(tl.int16, bitcast=True)
    tl.store(out + row * out_stride + i, bits, mask=i < count)


def narrow(values: Tensor, out: Tensor) -> Tensor:
    rows, count = values.shape
    if rows and count:
        values = values if values.stride(1) == 1 else values.contiguous()
        _narrow[(triton.cdiv(count, BLOCK), rows)](
            values, out.view(torch.int16), count, values.stride(0), out.stride(0),
            torch.finfo(out.dtype).max, out.dtype == torch.bfloat16, BLOCK, num_warps=4,
        )  # fmt: skip
    return out
