"""Bloom filters on CUDA.

Rows are asked about 32 at a time, and leave one bit each; `bitmap.triton` lists those that are set.
A bit of a row that was found out is not looked up: of ten bits, two on average are.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import ROW, mix64, mix_offset, ones
from thinwire.kernels.bitmap.triton import (
    block_of,
    list_marks,
    set_bit,
    share_of,
    shares_of,
    zeroed,
)
from thinwire.kernels.bloom.filter import Filter
from thinwire.kernels.bloom.reference import resolve

__all__ = ["insert", "positives", "resolve"]

INSERTED = 256
ASKED = 32  # words of marks in a turn: 1,024 rows
CHUNK = 1 << 27  # rows whose marks are held at once: 16 MiB


@triton.jit
def _hashes(row, offset):
    """The two numbers of a row's group, as uint32."""
    mixed = mix64(row >> 6, offset)
    return mixed.to(tl.uint32), (mixed >> 32).to(tl.uint32) | 1


@triton.jit
def _bit(a, reach, row):
    """The bit of hash `a` for a row of the group: of the word that is the group's."""
    bit = tl.umulhi(a, reach)
    return bit - (bit & 63) + ((bit + row.to(tl.uint32)) & 63)


@triton.jit(do_not_specialize=["count", "size", "hashes", "offset"])
def _insert(rows, words, count, size, hashes, offset, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + i, mask=i < count, other=0)
    a, b = _hashes(row, offset)
    reach = (a * 0) + size.to(tl.uint32)
    for _ in range(hashes):
        set_bit(words, _bit(a, reach, row).to(tl.int64), size, i < count)
        a += b


@triton.jit(do_not_specialize=["start", "rows", "size", "hashes", "offset", "marked"])
def _ask(
    words, marks, counts, start, rows, size, hashes, offset, marked,
    ASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Mark which of the `rows` rows from `start` on the filter may hold, and count them."""
    first, end = share_of(marked, BLOCK)
    tally = tl.zeros((ASKED,), tl.int64)
    lane = tl.arange(0, ROW)[None, :]
    for word in range(first, end, ASKED):
        at = word + tl.arange(0, ASKED)
        row = at[:, None] * ROW + lane
        held = row < rows
        a, b = _hashes(row + start, offset)
        reach = (a * 0) + size.to(tl.uint32)
        for _ in range(hashes):
            bit = _bit(a, reach, row + start)
            piece = tl.load(words + (bit >> 5), mask=held, other=0).to(tl.uint32, bitcast=True)
            held &= ((piece >> (bit & 31)) & 1) != 0
            a += b
        mark = tl.sum(held.to(tl.uint32) << lane.to(tl.uint32), axis=1)
        tl.store(marks + at, mark.to(tl.int32, bitcast=True), mask=at < end)
        tally += ones(mark)
    tl.store(counts + tl.program_id(0), tl.sum(tally))


def insert(rows: Tensor, size: int, hashes: int, salt: int) -> Tensor:
    words = zeroed(size, rows.device)
    if rows.numel():
        grid = (triton.cdiv(rows.numel(), INSERTED),)
        marks = words.view(torch.int32)
        _insert[grid](rows, marks, rows.numel(), size, hashes, mix_offset(salt), INSERTED)
    return words


def positives(filter: Filter, rows: int, limit: int) -> Tensor:
    """Of more than `limit`, one more is listed."""
    chunks: list[Tensor] = []
    room = limit + 1
    for start in range(0, rows if filter.size else 0, CHUNK):
        if not room:
            break
        marks, counts = _asked(filter, start, min(CHUNK, rows - start))
        count = min(room, int(counts.sum()))  # the host must know how much room to make
        chunks.append(list_marks(marks, counts, count).add_(start))
        room -= count
    return torch.cat(chunks) if chunks else filter.words.new_empty(0)


def _asked(filter: Filter, start: int, rows: int) -> tuple[Tensor, Tensor]:
    size = triton.cdiv(rows, ROW.value)
    marks = torch.empty(size, dtype=torch.int32, device=filter.words.device)
    counts = torch.empty(shares_of(size), dtype=torch.int64, device=marks.device)
    _ask[(counts.numel(),)](
        filter.words.view(torch.int32), marks, counts, start, rows, filter.size, filter.hashes,
        mix_offset(filter.salt), size, ASKED, block_of(size),
    )  # fmt: skip
    return marks, counts
