"""Codes of chunks on CUDA: one launch finds scales and codes, one reads codes.

A row of a tile is a chunk. Its values are placed so that a sum of halves, halved again and again,
adds in the order of `_numeric.row_sums`, whatever the length: the same bits as in torch. Chunks
that are longer than a tile take the way of `reference.py`; there are few of them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import divide, mix_offset
from thinwire.kernels.chunk_codes import reference
from thinwire.kernels.chunk_codes.chunks import Norm
from thinwire.kernels.pack_bits.triton import field_of_bytes
from thinwire.kernels.quantise.triton import rounded

TILE = 1024  # values, or one chunk
MOST_LANES = 4096
BLOCK = 1024
LARGEST = tl.constexpr(torch.finfo(torch.float32).max)


@triton.jit
def places(chunk, LANES: tl.constexpr):
    """Which value of the chunk each lane has, and if it has one.

    `row_sums` adds the i-th of ⌈s/2⌉ and the one ⌈s/2⌉ behind it, for s = chunk, ⌈chunk/2⌉, …: each
    bit of a lane, from the lowest, says which of the two it was in a round, from the last.
    """
    lane = tl.arange(0, LANES)
    place = lane * 0
    there = lane >= 0
    reached = 1
    for bit in tl.static_range(13):
        if (1 << bit) < LANES:
            second = ((lane >> bit) & 1) != 0
            place = tl.where(second, place + reached, place)
            reached = tl.cdiv(chunk, LANES // (2 << bit))
            there &= (place < reached) | (second == 0)
    return place, there


@triton.jit
def row_sums(x, there, ROWS: tl.constexpr, LANES: tl.constexpr):
    """The sum of each row of a float64 tile. Nothing is added where there is nothing: -0."""
    x = tl.where(there, x, tl.zeros_like(x) * -1.0)
    for bit in tl.static_range(13):
        if (1 << bit) < LANES:
            x = tl.sum(tl.reshape(x, (ROWS, 2, LANES // (2 << bit))), axis=1)
    return tl.reshape(x, (ROWS,))


@triton.jit
def _saturated(x):
    """Finite values clamped to what float32 holds; NaN and ±Inf pass."""
    beyond = (tl.abs(x) > LARGEST) & (tl.abs(x) < float("inf"))
    return tl.where(beyond, tl.where(x < 0, 0.0 - LARGEST, LARGEST), x)


@triton.jit
def _rounded_up(exact):
    """The least float32 that is not below a float64 ≥ 0."""
    exact = tl.where(exact < float("inf"), tl.minimum(exact, LARGEST), exact)
    near = exact.to(tl.float32)
    above = (near.to(tl.int32, bitcast=True) + 1).to(tl.float32, bitcast=True)
    return tl.where(near.to(tl.float64) < exact, above, near)


@triton.jit
def _shares(x, scales):
    by = tl.where(scales == 0, 1.0, scales).to(x.dtype)
    share = divide(x, tl.broadcast_to(by[:, None], x.shape))
    return tl.where(share == share, share, 0)


@triton.jit
def _load(values, at, mask):
    """Values, within the range of float32."""
    x = tl.load(values + at, mask=mask, other=0)
    return _saturated(x) if x.dtype == tl.float64 else x


@triton.jit
def largest_of(x, there):
    """The largest magnitude of each row as float64; NaN where there is one."""
    size = tl.where(there, tl.abs(x), 0).to(tl.float64)
    unknown = tl.max((there & (x != x)).to(tl.int32), axis=1) > 0
    return tl.where(unknown, float("nan"), tl.max(tl.where(size == size, size, 0), axis=1))


@triton.jit
def _tile(chunk, count, ROWS: tl.constexpr, LANES: tl.constexpr):
    """This program's chunks; where each lane's value is; if it is in a chunk; if it is there."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place, in_chunk = places(chunk, LANES)
    at = row[:, None] * chunk + place[None, :]
    in_chunk = tl.broadcast_to(in_chunk[None, :], at.shape)
    return row, at, in_chunk, in_chunk & (at < count)


@triton.jit(do_not_specialize=["count", "chunk", "levels", "offset"])
def _to_levels(
    values, norms, codes, count, chunk, levels, offset,
    L2: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    row, at, in_chunk, there = _tile(chunk, count, ROWS, LANES)
    x = _load(values, at, there)
    if L2:
        wide = x.to(tl.float64)
        norm = tl.sqrt(row_sums(wide * wide, in_chunk, ROWS, LANES))
    else:
        norm = largest_of(x, there)
    norm = _rounded_up(norm)
    tl.store(norms + row, norm, mask=row * chunk < count)
    step = rounded(tl.abs(_shares(x, norm)) * levels.to(x.dtype), at, offset)
    tl.store(codes + at, levels + tl.where(x < 0, 0 - step, step), mask=there)


@triton.jit(do_not_specialize=["count", "chunk", "offset"])
def _to_points(
    values, scales, codes, count, chunk, offset,
    BITS: tl.constexpr, NEAREST: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = ((1 << BITS) - 1) / 2
    row, at, in_chunk, there = _tile(chunk, count, ROWS, LANES)
    x = _load(values, at, there)
    wide = x.to(tl.float64)
    largest = _rounded_up(largest_of(x, there))
    reach = largest
    if NEAREST and BITS == 2:
        members = tl.maximum(tl.minimum(count - row * chunk, chunk), 1).to(tl.float64)
        mean_square = row_sums(wide * wide, in_chunk, ROWS, LANES) / members
        typical = _rounded_up(tl.sqrt(mean_square) * 1.5)
        reach = tl.where(typical < largest, typical, largest)
    height = tl.minimum(tl.maximum(_shares(x, reach), -1.0), 1.0) * HALF + HALF
    code = (height + 0.5).to(tl.int32) if NEAREST else rounded(height, at, offset)
    tl.store(codes + at, code, mask=there)
    if NEAREST and BITS == 2:
        point = tl.where(there, (2 * code - 3).to(tl.float64) / 3.0, 0)
        along = row_sums(point * wide, in_chunk, ROWS, LANES)
        best = along / row_sums(point * point, in_chunk, ROWS, LANES)
        best = tl.where(best > 0, best, 0).to(tl.float32)
        best = tl.minimum(best, largest)
        reach = tl.where(reach < float("inf"), best, reach)
    tl.store(scales + row, reach, mask=row * chunk < count)


@triton.jit(do_not_specialize=["size", "count", "chunk", "bits"])
def _read(
    packed, scales, values, sound, size, count, chunk, bits,
    LEVELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    code = field_of_bytes(packed, size, i, bits)
    scale = tl.load(scales + i // chunk, mask=i < count, other=0)
    bad = scale < 0
    if LEVELS:
        levels = (tl.full((), 1, tl.int32) << (bits - 1)) - 1
        bad |= code > 2 * levels
        level = (code - levels).to(values.dtype.element_ty)
        point = divide(level, tl.zeros_like(level) + levels.to(level.dtype))
    else:
        top = (tl.full((), 1, tl.int32) << bits) - 1
        point = (2 * code - top).to(tl.float64) / top.to(tl.float64)
        point = point.to(values.dtype.element_ty)
    tl.store(values + i, point * scale.to(point.dtype), mask=i < count)
    if tl.max((bad & (i < count)).to(tl.int32)) > 0:
        tl.store(sound, False)


def _fits(values: Tensor, chunk: int) -> bool:
    return 0 < min(chunk, values.numel()) <= MOST_LANES


def _room(values: Tensor, chunk: int) -> tuple[int, int, int, Tensor, Tensor]:
    """The chunk's length, the rows and lanes of a tile, and room for scales and codes."""
    chunk = min(chunk, values.numel())
    lanes = triton.next_power_of_2(chunk)
    scales = torch.empty(-(-values.numel() // chunk), dtype=torch.float32, device=values.device)
    codes = torch.empty(values.numel(), dtype=torch.int32, device=values.device)
    return chunk, max(1, TILE // lanes), lanes, scales, codes


def to_levels(
    values: Tensor, chunk: int, norm: Norm, levels: int, seed: int
) -> tuple[Tensor, Tensor]:
    if not _fits(values, chunk):
        return reference.to_levels(values, chunk, norm, levels, seed)
    chunk, rows, lanes, norms, codes = _room(values, chunk)
    _to_levels[(triton.cdiv(norms.numel(), rows),)](
        values, norms, codes, values.numel(), chunk, levels, mix_offset(seed),
        norm == "l2", rows, lanes, enable_fp_fusion=False,
    )  # fmt: skip
    return norms, codes


def to_points(values: Tensor, chunk: int, bits: int, seed: int | None) -> tuple[Tensor, Tensor]:
    if not _fits(values, chunk):
        return reference.to_points(values, chunk, bits, seed)
    chunk, rows, lanes, scales, codes = _room(values, chunk)
    _to_points[(triton.cdiv(scales.numel(), rows),)](
        values, scales, codes, values.numel(), chunk, mix_offset(seed or 0),
        bits, seed is None, rows, lanes, enable_fp_fusion=False,
    )  # fmt: skip
    return scales, codes


def from_codes(
    packed: Tensor,
    scales: Tensor,
    count: int,
    chunk: int,
    bits: int,
    dtype: torch.dtype,
    levels: bool,
) -> tuple[Tensor, Tensor]:
    values = torch.empty(count, dtype=dtype, device=packed.device)
    sound = torch.ones((), dtype=torch.bool, device=packed.device)
    if count:
        _read[(triton.cdiv(count, BLOCK),)](
            packed, scales, values, sound, packed.numel(), count, chunk, bits, levels, BLOCK
        )
    return values, sound
