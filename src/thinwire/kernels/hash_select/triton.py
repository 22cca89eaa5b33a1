"""Selection by hashing on CUDA: one pass, an atomic maximum for each survivor, and a fetch.

The hash takes some forty instructions, too many to spend on every element; only marked ones are
hashed.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import (
    ROW,
    accumulated_tile,
    hash_to_range,
    lowest,
    marks,
    mix_offset,
    ones,
    summands,
    tiling,
)
from thinwire.kernels.addend import Addend

WARPS = 4


@triton.jit(do_not_specialize=["slots", "offset", "numel"])
def _claim(
    x, grad, velocity, factor, bad, threshold, winners, slots, offset, numel, ROWS: tl.constexpr
):
    """Every survivor of this tile writes its index to its slot, if none larger is there."""
    word = marks(accumulated_tile(x, grad, velocity, factor, bad, numel, ROWS), threshold)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    for _ in range(tl.max(ones(word))):
        index = row * ROW + lowest(word)
        slot = hash_to_range(index, slots, offset)
        tl.atomic_max(winners + slot, index, mask=word != 0, sem="relaxed")
        word &= word - 1


@triton.jit(do_not_specialize=["slots"])
def _fetch(x, winners, values, slots, BLOCK: tl.constexpr):
    """The values of the winners."""
    slot = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    winner = tl.load(winners + slot, mask=slot < slots, other=-1)
    value = tl.load(x + winner, mask=winner >= 0, other=0)
    tl.store(values + slot, value, mask=slot < slots)


def hash_select(
    x: Tensor, threshold: Tensor, slots: int, seed: int, addend: Addend | None = None
) -> tuple[Tensor, Tensor]:
    winners = torch.full((slots,), -1, dtype=torch.int64, device=x.device)
    values = torch.empty(slots, dtype=x.dtype, device=x.device)
    tiles, rows = tiling(x, WARPS)
    _claim[(tiles,)](
        x, *summands(x, addend), threshold, winners, slots, mix_offset(seed), x.numel(), rows,
        num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    _fetch[(triton.cdiv(slots, 256),)](x, winners, values, slots, BLOCK=256, num_warps=4)
    if addend:
        addend.clear_gradient()
    return winners, values
