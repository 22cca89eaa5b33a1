"""Batched decoding on CUDA: the same bits on every rank, and one pass over the target.

A search finds where each part enters each tile of the target; then a program adds up the elements
of a tile (`tiles.py`), and steps with the sums. The few places that have one are done by
themselves, the others in a sweep that knows their sum is zero: no sum is looked up densely.

The cells in which a tile is added up are the output's own where it is of the sums' dtype: they
are in the cache, just filled with zeros. Else they are a workspace, one for each program that runs
at once; it does one tile after the other.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import astuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import divide, load_tile, store_tile
from thinwire.kernels.batched_decode import AdamW
from thinwire.kernels.batched_decode.tiles import add_one_by_one, add_up, elements, enter, number
from thinwire.types import Sparse, accumulator

_LANES = 256  # elements of all parts that a program holds at once
_LARGEST_TILE, _LEAST_TILE = 4096, 1024
_STRIP = 1024  # elements of the target in registers at once
_WARPS = 4
_SEARCHES = 128  # of a program
_PROGRAMS_A_MULTIPROCESSOR = {"sum": 12, "sgd": 6, "adam": 12}  # with a workspace, as measured
_TYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


@triton.jit
def _root(a):
    return tl.sqrt_rn(a) if a.dtype == tl.float32 else tl.sqrt(a)


@triton.jit
def _stepped(param, first, second, total, table, parts, STEP: tl.constexpr):
    """What becomes of elements and their moments, given the sum of the parts."""
    SUM: tl.constexpr = total.dtype
    mean = total * number(table, parts, 0, SUM)
    if STEP == "sum":
        param = mean
    elif STEP == "sgd":
        param = param - mean
    else:
        first = first + (mean - first) * number(table, parts, 2, SUM)
        weighted = (mean * number(table, parts, 4, SUM)) * mean
        second = second * number(table, parts, 3, SUM) + weighted
        divisor = _root(second) * number(table, parts, 6, SUM) + number(table, parts, 7, SUM)
        change = divide(first * number(table, parts, 5, SUM), divisor)
        param = param * number(table, parts, 1, SUM) - change
    return param, first, second


@triton.jit
def _sweep(
    table, parts, cells, crowded, target, exp_avg, exp_avg_sq, base, length,
    STEP: tl.constexpr, TILE: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    """Step with all of a tile: with the sums in its cells if it was crowded, else with none."""
    lane = tl.arange(0, STRIP)
    for strip in range(0, TILE, STRIP):
        at, left = base + strip, length - strip
        total = tl.zeros([STRIP], cells.dtype.element_ty)
        if crowded:
            total = load_tile(cells + strip, lane, left, "")
        param, first, second = total, total, total
        if STEP != "sum":
            param = load_tile(target + at, lane, left, "").to(total.dtype)
        if STEP == "adam":
            first = load_tile(exp_avg + at, lane, left, "").to(total.dtype)
            second = load_tile(exp_avg_sq + at, lane, left, "").to(total.dtype)
        if crowded:
            tl.debug_barrier()  # a cell may be the target's own, and another thread's to store
        param, first, second = _stepped(param, first, second, total, table, parts, STEP)
        store_tile(target + at, lane, left, param.to(target.dtype.element_ty))
        if STEP == "adam":
            store_tile(exp_avg + at, lane, left, first.to(exp_avg.dtype.element_ty))
            store_tile(exp_avg_sq + at, lane, left, second.to(exp_avg_sq.dtype.element_ty))


@triton.jit
def _fill(target, length, TILE: tl.constexpr, STRIP: tl.constexpr):
    lane = tl.arange(0, STRIP)
    for strip in range(0, TILE, STRIP):
        zeros = tl.zeros([STRIP], target.dtype.element_ty)
        store_tile(target + strip, lane, length - strip, zeros)


@triton.jit(do_not_specialize=["parts", "tiles", "turns"])
def _decode(
    table, parts, entries, workspace, numel, tiles, turns, target, exp_avg, exp_avg_sq,
    STEP: tl.constexpr, VALUE: tl.constexpr, PARTS: tl.constexpr, LOG_PARTS: tl.constexpr,
    LANES: tl.constexpr, TILE: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    IN_PLACE: tl.constexpr = workspace is None
    SWEEPS: tl.constexpr = STEP == "adam" or (STEP == "sum" and not IN_PLACE)
    program = tl.program_id(0).to(tl.int64)
    for turn in range(turns):
        tile = program + turn * tl.num_programs(0)
        if tile < tiles:
            base = tile * TILE
            length = tl.minimum(numel - base, TILE).to(tl.int32)
            if IN_PLACE:
                cells = target + base
                _fill(cells, length, TILE, STRIP)
            else:
                cells = workspace + program * TILE
            SUM: tl.constexpr = cells.dtype.element_ty
            entered = entries + tile * parts
            place, value, inside, crowded = elements(
                table, parts, entered, base, VALUE, PARTS, LOG_PARTS, LANES
            )
            tl.debug_barrier()  # the cells are zero
            if crowded:
                add_one_by_one(table, parts, entered, base, cells, VALUE, LANES)
            total, now, later = add_up(cells, place, value.to(SUM), inside, LANES)

            at = base + place
            param, first, second = total, total, total
            if STEP != "sum":
                param = tl.load(target + at, mask=inside, other=0).to(SUM)
            if STEP == "adam":
                first = tl.load(exp_avg + at, mask=inside, other=0).to(SUM)
                second = tl.load(exp_avg_sq + at, mask=inside, other=0).to(SUM)
            param, first, second = _stepped(param, first, second, total, table, parts, STEP)
            tl.debug_barrier()
            if not IN_PLACE:
                tl.store(cells + place, tl.zeros_like(total), mask=inside)
            if SWEEPS or crowded:
                _sweep(
                    table, parts, cells, crowded, target, exp_avg, exp_avg_sq, base, length,
                    STEP, TILE, STRIP,
                )  # fmt: skip
                tl.debug_barrier()
                if crowded and not IN_PLACE:  # only now: not every thread clears what it read
                    _fill(cells, length, TILE, STRIP)
            _store(target, exp_avg, exp_avg_sq, at, param, first, second, now, STEP)
            tl.debug_barrier()
            _store(target, exp_avg, exp_avg_sq, at, param, first, second, later, STEP)


@triton.jit
def _store(target, exp_avg, exp_avg_sq, at, param, first, second, lanes, STEP: tl.constexpr):
    tl.store(target + at, param.to(target.dtype.element_ty), mask=lanes)
    if STEP == "adam":
        tl.store(exp_avg + at, first.to(exp_avg.dtype.element_ty), mask=lanes)
        tl.store(exp_avg_sq + at, second.to(exp_avg_sq.dtype.element_ty), mask=lanes)


def decode_sum(parts: Sequence[Sparse], out: Tensor, scale: float) -> Tensor:
    """See the package."""
    if not parts:
        return out.zero_()
    _launch("sum", parts, [scale], out)
    return out


def decode_sgd(parts: Sequence[Sparse], param: Tensor, step_size: float) -> Tensor:
    """See the package."""
    if parts:
        _launch("sgd", parts, [step_size], param)
    return param


def decode_adam(
    parts: Sequence[Sparse], param: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, adam: AdamW
) -> Tensor:
    """See the package."""
    if param.numel():
        _launch("adam", parts, astuple(adam), param, exp_avg, exp_avg_sq)
    return param


def _launch(
    step: str,
    parts: Sequence[Sparse],
    numbers: Sequence[float],
    target: Tensor,
    exp_avg: Tensor | None = None,
    exp_avg_sq: Tensor | None = None,
) -> None:
    numel, device, dtype = target.numel(), target.device, accumulator(target.dtype)
    in_place = step == "sum" and target.dtype == dtype
    counts = [part.count for part in parts]
    tile = _tile(sum(counts) / numel)
    tiles = triton.cdiv(numel, tile)
    programs = tiles if in_place else min(tiles, _programs(step, device))
    table = _table(parts, numbers, device)
    entries = torch.empty((tiles + 1) * len(parts), dtype=torch.int64, device=device)
    if parts:
        grid = (triton.cdiv(tiles + 1, _SEARCHES), len(parts))
        steps = max(counts).bit_length()
        enter[grid](table, len(parts), steps, tiles, entries, tile, _SEARCHES)
    rows = triton.next_power_of_2(max(1, len(parts)))
    _decode[(programs,)](
        table,
        len(parts),
        entries,
        None if in_place else torch.zeros(programs * tile, dtype=dtype, device=device),
        numel,
        tiles,
        triton.cdiv(tiles, programs),
        target,
        exp_avg,
        exp_avg_sq,
        STEP=step,
        VALUE=_TYPES[parts[0].values.dtype if parts else torch.float32],
        PARTS=rows,
        LOG_PARTS=rows.bit_length() - 1,
        LANES=_LANES,
        TILE=tile,
        STRIP=_STRIP,
        num_warps=_WARPS,
        enable_fp_fusion=False,
    )


def _tile(density: float) -> int:
    """A size at which elements spread evenly find a lane, almost always: four deviations."""
    tile = _LARGEST_TILE
    while tile > _LEAST_TILE and tile * density + 4 * math.sqrt(tile * density) >= _LANES:
        tile //= 2
    return tile


def _programs(step: str, device: torch.device) -> int:
    """How many walk over the tiles; their cells stay in the cache."""
    if device.type != "cuda":
        return 2
    units = torch.cuda.get_device_properties(device).multi_processor_count
    return units * _PROGRAMS_A_MULTIPROCESSOR[step]


def _table(parts: Sequence[Sparse], numbers: Sequence[float], device: torch.device) -> Tensor:
    """Addresses, sizes and settings in one small tensor: arguments would be compiled for."""
    words = [
        *(part.indices.data_ptr() for part in parts),
        *(part.values.data_ptr() for part in parts),
        *(part.count for part in parts),
        *struct.unpack(f"{len(numbers)}q", struct.pack(f"{len(numbers)}d", *numbers)),
    ]
    on_gpu = device.type == "cuda"
    # Through pinned memory, or the host would wait for the device.
    return torch.tensor(words, dtype=torch.int64, pin_memory=on_gpu).to(device, non_blocking=True)
