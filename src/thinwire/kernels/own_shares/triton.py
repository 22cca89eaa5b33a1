"""Shares on CUDA: one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._lists import count_below
from thinwire.kernels.own_shares.region import Region
from thinwire.types import PADDING

BLOCK = 512
_PADDING = tl.constexpr(PADDING)


@triton.jit(do_not_specialize=["owner", "room", "stride", "sent", "kept", "steps", "numel"])
def _own_shares(
    rows, dealt, owner, region, sums, arrived, total, indices, values,
    room, stride, sent, kept, steps, numel, BLOCK: tl.constexpr,
):  # fmt: skip
    """The first programs look at what was dealt to others, the rest at the region."""
    program, sending = tl.program_id(0).to(tl.int64), tl.cdiv(sent, BLOCK)
    own = owner.to(tl.int64) * room
    lane = tl.arange(0, BLOCK)
    if program < sending:
        i = program * BLOCK + lane
        there = i < sent
        at = i + tl.where(i < own, 0, room)  # past the row of its own
        gap = at // room * (stride - room)  # rows of values may lie apart
        index = tl.load(rows + at, mask=there, other=_PADDING)
        value = tl.load(dealt + at + gap, mask=there, other=0)
    else:
        i = (program - sending) * BLOCK + lane
        there = i < kept
        index = tl.load(region + i, mask=there, other=_PADDING)
        at = count_below(rows + own, room, index, steps)
        same = tl.load(rows + own + at, mask=at < room, other=_PADDING) == index
        had = tl.load(dealt + owner.to(tl.int64) * stride + at, mask=(at < room) & same, other=0)
        meant = tl.load(sums + i, mask=there, other=0)
        value = had + (tl.load(arrived + i, mask=there, other=0) - meant)
        i += sent
    found = tl.load(total + index, mask=index < numel, other=0) != 0
    tl.store(indices + i, tl.where(found, index, _PADDING), mask=there)
    tl.store(values + i, tl.where(found, value, 0), mask=there)


def own_shares(rows: Tensor, dealt: Tensor, region: Region, total: Tensor) -> tuple[Tensor, Tensor]:
    (owners, room), kept = rows.shape, region.indices.numel()
    sent = (owners - 1) * room
    indices = torch.empty(sent + kept, dtype=torch.int64, device=rows.device)
    values = torch.empty(sent + kept, dtype=dealt.dtype, device=rows.device)
    grid = (triton.cdiv(sent, BLOCK) + triton.cdiv(kept, BLOCK),)
    _own_shares[grid](
        rows, dealt, region.owner, region.indices, region.sums, region.arrived, total,
        indices, values, room, dealt.stride(0), sent, kept, room.bit_length(), total.numel(),
        BLOCK, num_warps=4,
    )  # fmt: skip
    return indices, values
