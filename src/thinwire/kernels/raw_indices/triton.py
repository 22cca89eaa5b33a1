"""Raw indices on CUDA: one launch reads and checks them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.types import PADDING

BLOCK = 1024
_PADDING = tl.constexpr(PADDING)


@triton.jit
def _read(narrow, i, there, NONE: tl.constexpr):
    """As int64. Two bytes are unsigned."""
    index = tl.load(narrow + i, mask=there, other=0).to(tl.int64)
    if NONE > 0:
        index = index & NONE
    return index


@triton.jit(do_not_specialize=["count", "rows", "stride"])
def _widen(
    narrow, indices, sound, count, rows, stride,
    NONE: tl.constexpr, LAST_IS_NONE: tl.constexpr, ORDERED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1).to(tl.int64)
    narrow += row * stride
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    index = _read(narrow, i, i < count, NONE)
    padding = index == NONE
    bad = (index < 0) | (index >= rows)
    if ORDERED:
        follows = (i > 0) & (i < count)
        before = _read(narrow, i - 1, follows, NONE)
        if LAST_IS_NONE:
            padding = padding & follows & (before == NONE)
        bad = bad | (follows & (index <= before))
    tl.store(indices + row * count + i, tl.where(padding, _PADDING, index), mask=i < count)
    bad = bad & (padding == 0) & (i < count)
    if tl.max(bad.to(tl.int32)) > 0:
        tl.store(sound, False)


def widen(narrow: Tensor, rows: int, ordered: bool) -> tuple[Tensor, Tensor]:
    (size, count), device = narrow.shape, narrow.device
    indices = torch.empty(size, count, dtype=torch.int64, device=device)
    sound = torch.ones((), dtype=torch.bool, device=device)
    if size and count:
        none = 0xFFFF if narrow.dtype == torch.int16 else -1
        _widen[(triton.cdiv(count, BLOCK), size)](
            narrow, indices, sound, count, rows, narrow.stride(0), none, rows == 2**16, ordered,
            BLOCK, num_warps=4,
        )  # fmt: skip
    return indices, sound
