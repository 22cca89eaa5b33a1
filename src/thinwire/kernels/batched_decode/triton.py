"""Batched decoding on CUDA: the same bits on every rank, and one pass over the target.

A search finds where each part enters each tile of the target; then a program adds up the elements
of a tile (`tiles.py`). The few places that have a sum are written by themselves, all others as
zeros: no sum is looked up densely.

The cells in which a tile is added up are the output's own where it is of the sums' dtype: they
are in the cache, just filled with zeros. Else they are a workspace, one for each program that runs
at once; it does one tile after the other.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import constant, load_tile, store_tile
from thinwire.kernels.batched_decode.tiles import add_one_by_one, add_up, elements, enter
from thinwire.types import Sparse, accumulator

_ROW = 1024  # elements of a program that adds a row
_SEARCHES = 128  # of a program
_PROGRAMS_A_MULTIPROCESSOR = {4: 12, 1: 24}  # by their warps; with a workspace
_TYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


class _Shape(NamedTuple):
    """How tiles are worked on: how long they are, how many elements of all parts a program holds
    at once, its warps, and how many elements of the target are in registers at once."""

    tile: int
    lanes: int
    warps: int
    strip: int


# Where few elements are in a tile, a single warp does it: none waits for another, and what is
# known of the parts is worked out once, not by each of four: fewer than a third of the
# instructions for a tile.
_SPARSE = (_Shape(4096, 128, 1, 512), _Shape(2048, 128, 1, 512))
_DENSE = (_Shape(4096, 256, 4, 1024), _Shape(2048, 256, 4, 1024), _Shape(1024, 256, 4, 1024))


@triton.jit
def _write(target, cells, summed, scale, length, TILE: tl.constexpr, STRIP: tl.constexpr):
    """All of a tile: scale times what its cells hold if it was `summed` there, else zeros."""
    lane = tl.arange(0, STRIP)
    for strip in range(0, TILE, STRIP):
        left = length - strip
        mean = tl.zeros([STRIP], cells.dtype.element_ty)
        if summed:
            mean = load_tile(cells + strip, lane, left, "") * scale
            tl.debug_barrier()  # a cell may be the target's own, and another thread's to store
        store_tile(target + strip, lane, left, mean.to(target.dtype.element_ty))


@triton.jit(do_not_specialize=["parts", "tiles", "turns"])
def _decode(
    table, parts, entries, workspace, numel, tiles, turns, factor, target,
    VALUE: tl.constexpr, PARTS: tl.constexpr, LOG_PARTS: tl.constexpr,
    LANES: tl.constexpr, TILE: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    IN_PLACE: tl.constexpr = workspace is None
    IN_WORKSPACE: tl.constexpr = not IN_PLACE
    program = tl.program_id(0).to(tl.int64)
    for turn in range(turns):
        tile = program + turn * tl.num_programs(0)
        if tile < tiles:
            base = tile * TILE
            out = target + base
            length = tl.minimum(numel - base, TILE).to(tl.int32)
            cells = out if IN_PLACE else workspace + program * TILE
            SUM: tl.constexpr = cells.dtype.element_ty
            scale = tl.load(factor).to(SUM)
            if IN_PLACE:
                _write(cells, cells, False, scale, length, TILE, STRIP)
            entered = entries + tile * parts
            place, value, inside, crowded = elements(
                table, parts, entered, base, VALUE, PARTS, LOG_PARTS, LANES
            )
            tl.debug_barrier()  # the cells are zero
            if crowded:
                add_one_by_one(table, parts, entered, base, cells, VALUE, LANES)
            total, now, later = add_up(cells, place, value.to(SUM), inside, LANES)
            mean = (total * scale).to(target.dtype.element_ty)
            tl.debug_barrier()
            if IN_WORKSPACE:
                tl.store(cells + place, tl.zeros_like(total), mask=inside)
            if IN_WORKSPACE or crowded:
                _write(out, cells, crowded, scale, length, TILE, STRIP)
                tl.debug_barrier()
                if crowded and IN_WORKSPACE:  # only now: not every thread clears what it read
                    _write(cells, cells, False, scale, length, TILE, STRIP)
            tl.store(out + place, mean, mask=now)
            tl.debug_barrier()
            tl.store(out + place, mean, mask=later)


@triton.jit(do_not_specialize=["count", "numel"])
def _add_row(
    indices, values, factor, total, marked, count, numel, FIRST: tl.constexpr, BLOCK: tl.constexpr
):
    """A row after the others: indices are unique in it, so that nobody meets at an element.

    The FIRST says whether it is marked, and each other one if it is.
    """
    if tl.program_id(0) == 0:
        head = tl.load(values)
        tl.store(marked, (head != head).to(tl.int64), mask=FIRST | (head != head))
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + i, mask=i < count, other=numel)
    there = (index >= 0) & (index < numel)
    share = tl.load(values + i, mask=there, other=0).to(total.dtype.element_ty) * tl.load(factor)
    before = tl.load(total + index, mask=there, other=0)
    tl.store(total + index, before + share, mask=there)


def decode_sum(parts: Sequence[Sparse], out: Tensor, scale: float | Tensor) -> Tensor:
    if not parts:
        return out.zero_()
    counts = [part.count for part in parts]
    table = _table(parts, out.device)
    return _decode_all(table, len(parts), max(counts), sum(counts), parts[0].values, out, scale)


def add_rows(indices: Tensor, values: Tensor, total: Tensor, scale: float) -> Tensor:
    rows, count = indices.shape
    if not indices.numel():
        return torch.zeros((), dtype=torch.int64, device=total.device)
    factor = constant(scale, total.dtype, total.device)
    marked = torch.empty((), dtype=torch.int64, device=total.device)
    for row in range(rows):
        _add_row[(triton.cdiv(count, _ROW),)](
            indices[row], values[row], factor, total, marked, count, total.numel(), row == 0, _ROW,
            num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
    return marked


def _decode_all(
    table: Tensor, parts: int, longest: int, elements: int, like: Tensor, out: Tensor,
    scale: float | Tensor,
) -> Tensor:  # fmt: skip
    """Decode the parts in the table, whose values are `like` these."""
    numel, device, dtype = out.numel(), out.device, accumulator(out.dtype)
    if not isinstance(scale, Tensor):
        scale = constant(scale, torch.float64, device)
    tile, lanes, warps, strip = _shape(elements / numel)
    tiles = triton.cdiv(numel, tile)
    programs, workspace = tiles, None
    if out.dtype != dtype:
        programs = min(tiles, _programs(device, warps))
        workspace = torch.zeros(programs * tile, dtype=dtype, device=device)
    entries = torch.empty((tiles + 1) * parts, dtype=torch.int64, device=device)
    searches = (triton.cdiv(tiles + 1, _SEARCHES), parts)
    enter[searches](table, parts, longest.bit_length(), tiles, numel, entries, tile, _SEARCHES)
    rows = triton.next_power_of_2(parts)
    _decode[(programs,)](
        table, parts, entries, workspace, numel, tiles, triton.cdiv(tiles, programs), scale, out,
        VALUE=_TYPES[like.dtype], PARTS=rows, LOG_PARTS=rows.bit_length() - 1,
        LANES=lanes, TILE=tile, STRIP=strip, num_warps=warps, enable_fp_fusion=False,
    )  # fmt: skip
    return out


def _shape(density: float) -> _Shape:
    """One in which elements spread evenly find a lane, almost always: four deviations."""
    for shape in (*_SPARSE, *_DENSE):
        expected = shape.tile * density
        if expected + 4 * math.sqrt(expected) < shape.lanes:
            break
    return shape


def _programs(device: torch.device, warps: int) -> int:
    """How many walk over the tiles; their cells stay in the cache."""
    if device.type != "cuda":
        return 2
    units: int = torch.cuda.get_device_properties(device).multi_processor_count
    return units * _PROGRAMS_A_MULTIPROCESSOR[warps]


def _table(parts: Sequence[Sparse], device: torch.device) -> Tensor:
    """Addresses and sizes in one small tensor: arguments would be compiled for."""
    words = [
        *(part.indices.data_ptr() for part in parts),
        *(part.values.data_ptr() for part in parts),
        *(part.count for part in parts),
    ]
    on_gpu = device.type == "cuda"
    # Through pinned memory, or the host would wait for the device.
    return torch.tensor(words, dtype=torch.int64, pin_memory=on_gpu).to(device, non_blocking=True)
