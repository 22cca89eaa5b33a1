"""Batched decoding on CUDA: one launch, no atomics, the same bits on every rank.

A sum is built in its output. A program owns a tile of it: a search finds where each part enters
the tile, the tile is filled with zeros, and while it is in the cache the elements are added up
there (`tiles.py`). The other functions keep a map of the tile and its sums in a workspace, one for
each program that runs at once, and walk over a run of tiles with a cursor for each part.

A tile with more elements of one part than it has lanes is done in several rounds.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.batched_decode import AdamW
from thinwire.kernels.batched_decode.tiles import (
    FAN,
    add_up,
    clear,
    clear_between,
    dense,
    enter,
    load,
    number,
    read,
    settle,
    store,
    workspace,
)
from thinwire.types import Sparse, accumulator

_LANES = 512  # elements of all parts that a program holds at once
_LARGEST_TILE = 8192
_STRIP = 1024  # elements of the target in registers at once
_LEAST_TILE = 1024
_PROGRAMS_A_MULTIPROCESSOR = 12  # that can run at once
_VARYING = ["parts", "steps", "tiles"]  # one compilation serves them all
_TYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


@triton.jit(do_not_specialize=_VARYING)
def _sum_in_place(
    table, parts, steps, numel, out,
    VALUE: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
    STRIP: tl.constexpr,
):  # fmt: skip
    SUM: tl.constexpr = out.dtype.element_ty
    scale = number(table, parts, 0, SUM)
    base = tl.program_id(0).to(tl.int64) * TILE
    at, stop = base, tl.minimum(base + TILE, numel)
    first = enter(table, parts, steps, base, PARTS)
    while at < stop:
        place, value, inside, limit, first = read(
            table, parts, first, base, at, stop, VALUE, PARTS, WIDTH
        )
        clear_between(out + base, at - base, limit - base, TILE, STRIP)
        tl.debug_barrier()  # only now, so that what is added to is still in the cache
        settle(out + base, place, value.to(SUM) + 0.0, inside, scale, parts, PARTS, WIDTH)
        tl.debug_barrier()
        at = limit


@triton.jit(do_not_specialize=_VARYING)
def _sum(
    table, parts, steps, map, sums, numel, tiles, out,
    VALUE: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
    STRIP: tl.constexpr,
):  # fmt: skip
    map, runners_up, sums = workspace(map, sums, TILE, PARTS * WIDTH)
    scale = number(table, parts, 0, sums.dtype.element_ty)
    start = tl.program_id(0).to(tl.int64) * tiles * TILE
    first = enter(table, parts, steps, start, PARTS)
    for tile in range(tiles):
        base = start + tile * TILE
        at, stop = base, tl.minimum(base + TILE, numel)
        while at < stop:
            place, value, inside, limit, first = read(
                table, parts, first, base, at, stop, VALUE, PARTS, WIDTH
            )
            total, owns, _ = add_up(
                place, value, inside, parts, map, runners_up, sums, PARTS, WIDTH
            )
            low, high = at - base, limit - base
            for strip in range(0, TILE, STRIP):
                places = strip + tl.arange(0, STRIP)
                whole = (low <= strip) & (strip + STRIP <= high)
                store(out + base, places, low, high, whole, tl.zeros([STRIP], total.dtype))
            tl.debug_barrier()
            tl.store(out + base + place, (total * scale).to(out.dtype.element_ty), mask=owns)
            clear(map, place, inside)
            at = limit


@triton.jit(do_not_specialize=_VARYING)
def _sgd(
    table, parts, steps, map, sums, numel, tiles, param,
    VALUE: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
    STRIP: tl.constexpr,
):  # fmt: skip
    map, runners_up, sums = workspace(map, sums, TILE, PARTS * WIDTH)
    step_size = number(table, parts, 0, sums.dtype.element_ty)
    start = tl.program_id(0).to(tl.int64) * tiles * TILE
    first = enter(table, parts, steps, start, PARTS)
    for tile in range(tiles):
        base = start + tile * TILE
        at, stop = base, tl.minimum(base + TILE, numel)
        while at < stop:
            place, value, inside, limit, first = read(
                table, parts, first, base, at, stop, VALUE, PARTS, WIDTH
            )
            total, owns, _ = add_up(
                place, value, inside, parts, map, runners_up, sums, PARTS, WIDTH
            )
            before = tl.load(param + base + place, mask=owns, other=0).to(total.dtype)
            after = before - total * step_size
            tl.store(param + base + place, after.to(param.dtype.element_ty), mask=owns)
            clear(map, place, inside)
            at = limit


@triton.jit
def _divide(a, b):
    """Rounded to nearest: Triton's own division of float32 is not."""
    return tl.div_rn(a, b) if a.dtype == tl.float32 else a / b


@triton.jit
def _root(a):
    return tl.sqrt_rn(a) if a.dtype == tl.float32 else tl.sqrt(a)


@triton.jit(do_not_specialize=_VARYING)
def _adam(
    table, parts, steps, map, sums, numel, tiles, param, exp_avg, exp_avg_sq,
    VALUE: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
    STRIP: tl.constexpr,
):  # fmt: skip
    map, runners_up, sums = workspace(map, sums, TILE, PARTS * WIDTH)
    SUM: tl.constexpr = sums.dtype.element_ty
    scale = number(table, parts, 0, SUM)
    decay = number(table, parts, 1, SUM)
    first_weight = number(table, parts, 2, SUM)
    second_decay = number(table, parts, 3, SUM)
    second_weight = number(table, parts, 4, SUM)
    step_size = number(table, parts, 5, SUM)
    second_correction = number(table, parts, 6, SUM)
    eps = number(table, parts, 7, SUM)
    start = tl.program_id(0).to(tl.int64) * tiles * TILE
    entered = enter(table, parts, steps, start, PARTS)
    for tile in range(tiles):
        base = start + tile * TILE
        at, stop = base, tl.minimum(base + TILE, numel)
        while at < stop:
            place, value, inside, limit, entered = read(
                table, parts, entered, base, at, stop, VALUE, PARTS, WIDTH
            )
            total, owns, lane = add_up(
                place, value, inside, parts, map, runners_up, sums, PARTS, WIDTH
            )
            tl.store(sums + lane, total, mask=owns)
            tl.debug_barrier()
            low, high = at - base, limit - base
            for strip in range(0, TILE, STRIP):
                places = strip + tl.arange(0, STRIP)
                whole = (low <= strip) & (strip + STRIP <= high)
                first = load(exp_avg + base, places, low, high, whole, SUM)
                second = load(exp_avg_sq + base, places, low, high, whole, SUM)
                decayed = load(param + base, places, low, high, whole, SUM) * decay
                mean = dense(map, sums, places) * scale
                first = first + (mean - first) * first_weight
                second = second * second_decay + (mean * second_weight) * mean
                divisor = _root(second) * second_correction + eps
                after = decayed - _divide(first * step_size, divisor)
                store(exp_avg + base, places, low, high, whole, first)
                store(exp_avg_sq + base, places, low, high, whole, second)
                store(param + base, places, low, high, whole, after)
            tl.debug_barrier()
            clear(map, place, inside)
            at = limit


def decode_sum(parts: Sequence[Sparse], out: Tensor, scale: float) -> Tensor:
    """See the package."""
    if not parts:
        return out.zero_()
    if out.dtype != accumulator(out.dtype):
        _launch(_sum, parts, [scale], out)
        return out
    shape, steps = _shape(parts, out.numel())
    _sum_in_place[(triton.cdiv(out.numel(), shape["TILE"]),)](
        _table(parts, [scale], out.device), len(parts), steps, out.numel(), out, **shape
    )
    return out


def decode_sgd(parts: Sequence[Sparse], param: Tensor, step_size: float) -> Tensor:
    """See the package."""
    if parts:
        _launch(_sgd, parts, [step_size], param)
    return param


def decode_adam(
    parts: Sequence[Sparse], param: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, adam: AdamW
) -> Tensor:
    """See the package."""
    if param.numel():
        _launch(_adam, parts, astuple(adam), param, exp_avg, exp_avg_sq)
    return param


def _launch(
    kernel: Any,
    parts: Sequence[Sparse],
    numbers: Sequence[float],
    target: Tensor,
    *moments: Tensor,
) -> None:
    """With a workspace for as many programs as run at once."""
    numel, device = target.numel(), target.device
    shape, steps = _shape(parts, numel)
    tile, lanes = shape["TILE"], shape["PARTS"] * shape["WIDTH"]
    tiles = triton.cdiv(triton.cdiv(numel, tile), _programs(device))  # of each program
    grid = (triton.cdiv(numel, tiles * tile),)
    kernel[grid](
        _table(parts, numbers, device),
        len(parts),
        steps,
        torch.empty(grid[0] * (tile + lanes), dtype=torch.int16, device=device),
        torch.empty(grid[0] * lanes, dtype=accumulator(target.dtype), device=device),
        numel,
        tiles,
        target,
        *moments,
        **shape,
    )


def _shape(parts: Sequence[Sparse], numel: int) -> tuple[dict[str, Any], int]:
    """What a kernel is compiled for, and the steps of a search."""
    rows = triton.next_power_of_2(max(1, len(parts)))
    width = max(1, _LANES // rows)
    most = max((part.count for part in parts), default=0)
    tile = _tile(most / numel, width)
    shape = {
        "VALUE": _TYPES[parts[0].values.dtype if parts else torch.float32],
        "PARTS": rows,
        "WIDTH": width,
        "TILE": tile,
        "STRIP": min(tile, _STRIP),
        "enable_fp_fusion": False,
    }
    return shape, math.ceil(math.log(most + 1, FAN.value + 1)) + 1


def _tile(density: float, width: int) -> int:
    """A size at which elements spread evenly find a lane, almost always: four deviations."""
    tile = _LARGEST_TILE
    while tile > _LEAST_TILE and tile * density + 4 * math.sqrt(tile * density) >= width:
        tile //= 2
    return tile


def _programs(device: torch.device) -> int:
    """How many run at once; their maps stay in the cache."""
    if device.type != "cuda":
        return 2
    units = torch.cuda.get_device_properties(device).multi_processor_count
    return units * _PROGRAMS_A_MULTIPROCESSOR


def _table(parts: Sequence[Sparse], numbers: Sequence[float], device: torch.device) -> Tensor:
    """Addresses, sizes and settings in one small tensor: arguments would be compiled for."""
    words = [
        *(part.indices.data_ptr() for part in parts),
        *(part.values.data_ptr() for part in parts),
        *(part.count for part in parts),
        *struct.unpack(f"{len(numbers)}q", struct.pack(f"{len(numbers)}d", *numbers)),
    ]
    table = torch.tensor(words, dtype=torch.int64)
    if device.type == "cuda":  # from pinned memory, or the host would wait for the device
        table = table.pin_memory().to(device, non_blocking=True)
    return table
