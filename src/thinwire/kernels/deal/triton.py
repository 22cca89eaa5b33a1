"""Dealing on CUDA: one launch counts what each piece of the list has for each owner, the next puts
it behind what the pieces before have."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._lists import sum_before
from thinwire.kernels._triton import hash_to_range
from thinwire.rng import Seed, offset_on
from thinwire.types import PADDING

PIECE = 1024  # elements that a program looks at, for one owner
WARPS = 4
_PADDING = tl.constexpr(PADDING)


@triton.jit
def _owned(indices, i, count, owners, offset):
    """The indices at `i`, and which of them are of this program's owner."""
    index = tl.load(indices + i, mask=i < count, other=_PADDING)
    owner = tl.program_id(1).to(tl.int64)
    owned = hash_to_range(index, owners, tl.load(offset)) == owner
    return index, (index != _PADDING) & owned


@triton.jit(do_not_specialize=["count", "owners"])
def _tally(indices, tallies, count, owners, offset, PIECE: tl.constexpr):
    piece = tl.program_id(0)
    i = piece.to(tl.int64) * PIECE + tl.arange(0, PIECE)
    _index, owned = _owned(indices, i, count, owners, offset)
    tl.store(tallies + tl.program_id(1) * tl.num_programs(0) + piece, tl.sum(owned.to(tl.int32)))


@triton.jit(do_not_specialize=["count", "owners", "room"])
def _place(
    indices, values, tallies, rows, dealt, count, owners, room, offset, PIECE: tl.constexpr
):  # fmt: skip
    piece, owner, pieces = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    rows += owner.to(tl.int64) * room
    dealt += owner.to(tl.int64) * room
    before = sum_before(tallies + owner * pieces, piece, PIECE)
    i = piece.to(tl.int64) * PIECE + tl.arange(0, PIECE)
    index, owned = _owned(indices, i, count, owners, offset)
    here = owned.to(tl.int32)
    place = before + tl.cumsum(here) - here
    there = owned & (place < room)
    tl.store(rows + place, index, mask=there)
    tl.store(dealt + place, tl.load(values + i, mask=there, other=0), mask=there)
    if piece == pieces - 1:
        for start in range(before + tl.sum(here), room, PIECE):
            at = start + tl.arange(0, PIECE)
            tl.store(rows + at, tl.full((PIECE,), _PADDING, tl.int64), mask=at < room)
            nothing = tl.zeros((PIECE,), dealt.dtype.element_ty)
            tl.store(dealt + at, nothing, mask=at < room)


def deal(
    indices: Tensor, values: Tensor, owners: int, room: int, seed: Seed
) -> tuple[Tensor, Tensor]:
    device, count = indices.device, indices.numel()
    rows = torch.empty(owners, room, dtype=torch.int64, device=device)
    dealt = torch.empty(owners, room, dtype=values.dtype, device=device)
    grid = (max(1, triton.cdiv(count, PIECE)), owners)
    tallies = torch.empty(grid[0] * owners, dtype=torch.int32, device=device)
    asked = (count, owners, offset_on(device, seed))
    _tally[grid](indices, tallies, *asked, PIECE, num_warps=WARPS)
    _place[grid](
        indices, values, tallies, rows, dealt, count, owners, room, asked[2], PIECE,
        num_warps=WARPS,
    )  # fmt: skip
    return rows, dealt
