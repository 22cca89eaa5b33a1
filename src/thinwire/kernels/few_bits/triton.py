"""Few bits on CUDA: a program has some groups in its registers, and passes over memory once.

Launched without fused multiply-add: each operation is rounded as torch's are.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import divide, finite_only, load_tile, mix64, mix_offset, store_tile
from thinwire.kernels.addend import Addend
from thinwire.kernels.few_bits.form import NAN_SCALE, SMALLEST, Form

TILE = 4096  # elements a program, where groups are not larger than that
WARPS = 8
_SMALLEST, _NAN = tl.constexpr(SMALLEST), tl.constexpr(NAN_SCALE)


@triton.jit
def _butterflies(tile, GROUP: tl.constexpr, DISTANCE: tl.constexpr):
    count: tl.constexpr = tile.shape[0]
    pairs = tl.reshape(tile, (count * GROUP // (2 * DISTANCE), 2, DISTANCE))
    first, second = tl.split(tl.permute(pairs, (0, 2, 1)))
    pairs = tl.permute(tl.join(first + second, first - second), (0, 2, 1))
    return tl.reshape(pairs, (count, GROUP))


@triton.jit
def _hadamard(tile, GROUP: tl.constexpr):
    """Pairs at a distance of 1, 2, 4 … elements."""
    for turn in tl.static_range(0, 16):
        if (1 << turn) < GROUP:
            tile = _butterflies(tile, GROUP, 1 << turn)
    return tile


@triton.jit
def _with_signs(tile, place, rotation):
    # Triton's unary minus is 0 - x, which has no negative zero.
    return tl.where((mix64(place, rotation) >> 63) > 0, tile * -1.0, tile)


@triton.jit
def _rotated(tile, place, rotation, GROUP: tl.constexpr, ROTATES: tl.constexpr):
    if ROTATES:
        tile = _hadamard(_with_signs(tile, place, rotation), GROUP)
    return tile


@triton.jit
def _rotated_back(tile, place, rotation, GROUP: tl.constexpr, ROTATES: tl.constexpr):
    if ROTATES:
        tile = _with_signs(_hadamard(tile, GROUP) * (1.0 / GROUP), place, rotation)
    return tile


@triton.jit
def _rounded(tile, place, largest, seed, LEVELS: tl.constexpr, AT_RANDOM: tl.constexpr):
    """Codes, still as floats, a column of scales, and of those the bits that travel."""
    infinity = float("inf")
    magnitudes = tl.abs(tile)
    most = tl.max(tl.where(magnitudes < infinity, magnitudes, infinity), axis=1)
    bad = most == infinity
    exact = divide(most, tl.full(most.shape, LEVELS, most.dtype)).to(tl.float32)
    word = (exact.to(tl.int32, bitcast=True) + 0xFFFF) & -65536
    scale = tl.minimum(word.to(tl.float32, bitcast=True), largest)
    scale = tl.where(bad | (most < _SMALLEST), 0.0, scale)
    stored = tl.where(bad, _NAN, scale.to(tl.int32, bitcast=True) >> 16).to(tl.int16)
    wide = scale.to(tile.dtype)
    nonzero = tl.where(wide > 0, wide, 1.0)
    inverse = tl.where(wide > 0, divide(tl.full(wide.shape, 1, wide.dtype), nonzero), 0.0)
    height = tl.where(bad[:, None], 0.0, tile) * inverse[:, None]
    floor = tl.floor(height)
    if AT_RANDOM:
        drawn = (mix64(place, seed) >> 40).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08
    else:
        drawn = 0.5
    code = floor + tl.where(height - floor > drawn, 1.0, 0.0)
    code = tl.minimum(tl.maximum(code, -LEVELS), LEVELS).to(tile.dtype)
    return code, wide[:, None], stored, bad[:, None]


@triton.jit
def _write(codes, base, code, there, GROUP: tl.constexpr, BITS: tl.constexpr):
    """The codes of groups that begin `base` bytes after `codes`."""
    count: tl.constexpr = code.shape[0]
    small = code.to(tl.int32)
    if BITS == 4:
        low, high = tl.split(tl.reshape(small, (count, GROUP // 2, 2)))
        small = (low & 15) | ((high & 15) << 4)
    at = base[:, None] + tl.arange(0, GROUP * BITS // 8)[None, :]
    tl.store(codes + at, (small & 255).to(tl.uint8), mask=there[:, None])


@triton.jit
def _read(codes, base, there, GROUP: tl.constexpr, BITS: tl.constexpr):
    """The counterpart of `_write`, as int32."""
    at = base[:, None] + tl.arange(0, GROUP * BITS // 8)[None, :]
    small = tl.load(codes + at, mask=there[:, None], other=0).to(tl.int32)
    if BITS == 4:
        count: tl.constexpr = small.shape[0]
        small = tl.reshape(tl.join((small << 28) >> 28, (small << 24) >> 28), (count, GROUP))
    else:
        small = (small << 24) >> 24
    return small


@triton.jit
def _read_scale(scales, at, there):
    word = tl.load(scales + at, mask=there, other=0).to(tl.int32) << 16
    return word.to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["numel", "own", "seed", "rotation"])
def _quantise(
    x, grad, bad, codes, scales, numel, groups, shards, row_bytes, code_bytes, own, largest, seed,
    rotation, GROUPS: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr,
    AT_RANDOM: tl.constexpr, ROTATES: tl.constexpr, SETTLES: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * GROUPS
    which = first + tl.arange(0, GROUPS)
    start, at = first * GROUP, tl.arange(0, GROUPS)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    left, place = numel - start, start + at
    tile = load_tile(x + start, at, left, "")
    if ADDS:
        step = load_tile(grad + start, at, left, "")
        if bad is not None:
            step = finite_only(step, bad)
        tile = (tile + step).to(tile.dtype)
    levels: tl.constexpr = (1 << (BITS - 1)) - 1
    turned = _rotated(tile, place, rotation, GROUP, ROTATES)
    code, scale, stored, strange = _rounded(turned, place, largest, seed, levels, AT_RANDOM)
    shard, there = which // groups, which < groups * shards
    inside = which - shard * groups
    _write(codes, shard * row_bytes + inside * (GROUP * BITS // 8), code, there, GROUP, BITS)
    tl.store(scales + (shard * row_bytes + code_bytes) // 2 + inside, stored, mask=there)
    if SETTLES:
        lost = tile - _rotated_back(code * scale, place, rotation, GROUP, ROTATES)
        lost = tl.where(strange, 0.0, lost).to(tile.dtype)
        tile = tl.where((shard == own)[:, None], tile, lost)
    if SETTLES or ADDS:
        store_tile(x + start, at, left, tile)


@triton.jit(do_not_specialize=["numel", "own", "seed", "rotation"])
def _add_up(
    codes, scales, x, out_codes, out_scales, numel, groups, shards, row_bytes, code_bytes, own,
    largest, seed, rotation, GROUPS: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr,
    AT_RANDOM: tl.constexpr, ROTATES: tl.constexpr, SETTLES: tl.constexpr,
):  # fmt: skip
    inside = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    there = inside < groups
    place = ((own.to(tl.int64) * groups + inside) * GROUP)[:, None] + tl.arange(0, GROUP)[None, :]
    mask = there[:, None] & (place < numel)
    exact = tl.load(x + place, mask=mask, other=0)
    turned = _rotated(exact, place, rotation, GROUP, ROTATES)
    total = tl.zeros_like(exact)
    base = inside * (GROUP * BITS // 8)
    for rank in range(shards):
        before = row_bytes.to(tl.int64) * rank
        if rank == own:
            total += turned
        else:
            scale = _read_scale(scales, (before + code_bytes) // 2 + inside, there)
            code = _read(codes, before + base, there, GROUP, BITS)
            total += code.to(total.dtype) * scale.to(total.dtype)[:, None]
    levels: tl.constexpr = (1 << (BITS - 1)) - 1
    code, scale, stored, strange = _rounded(total, place, largest, seed, levels, AT_RANDOM)
    _write(out_codes, base, code, there, GROUP, BITS)
    tl.store(out_scales + code_bytes // 2 + inside, stored, mask=there)
    if SETTLES:
        lost = tl.where(strange, 0.0, total - code * scale).to(total.dtype)
        lost = _rotated_back(lost, place, rotation, GROUP, ROTATES)
        tl.store(x + place, lost, mask=mask)


@triton.jit(do_not_specialize=["numel", "offset", "rotation"])
def _dequantise(
    codes, scales, out, divisor, offset, numel, groups, shards, row_bytes, code_bytes, rotation,
    GROUPS: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr, ROTATES: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * GROUPS
    which = first + tl.arange(0, GROUPS)
    shard, there = which // groups, which < groups * shards
    inside = which - shard * groups
    before = shard * row_bytes
    scale = _read_scale(scales, (before + code_bytes) // 2 + inside, there)
    code = _read(codes, before + inside * (GROUP * BITS // 8), there, GROUP, BITS)
    kind = out.dtype.element_ty
    tile = code.to(kind) * scale.to(kind)[:, None]
    start, at = first * GROUP, tl.arange(0, GROUPS)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    tile = _rotated_back(tile, offset + start + at, rotation, GROUP, ROTATES)
    tile = divide(tile, tl.full(tile.shape, 1, kind) * divisor)
    store_tile(out + start, at, numel - start, tile)


def _tiling(form: Form, groups: int) -> tuple[tuple[int], int]:
    """The grid, and how many groups each program has."""
    each = max(1, TILE // form.group)
    return (triton.cdiv(groups, each),), each


def _sizes(form: Form, numel: int, shards: int) -> tuple[int, int, int, int, int]:
    return numel, form.groups, shards, form.row_bytes, form.code_bytes


def _pointers(rows: Tensor) -> tuple[Tensor, Tensor]:
    return rows, rows.view(torch.int16)


def _rotation(form: Form) -> tuple[int, bool]:
    return mix_offset(form.rotation or 0), form.rotation is not None


def quantise_shards(
    x: Tensor, form: Form, own: int, seed: int | None, settle: bool, addend: Addend | None
) -> Tensor:
    if addend and addend.velocity is not None:
        addend.add_to(x)
        addend = None
    rows, (rotation, rotates) = form.rows(form.shards, x.device), _rotation(form)
    grid, each = _tiling(form, form.shards * form.groups)
    added = (addend.grad, addend.bad) if addend else (None, None)
    _quantise[grid](
        x, *added, *_pointers(rows), *_sizes(form, form.numel, form.shards), own,
        form.largest_scale, mix_offset(seed or 0), rotation, each, form.group, form.bits,
        seed is not None, rotates, settle, addend is not None, num_warps=WARPS,
        enable_fp_fusion=False,
    )  # fmt: skip
    if addend:
        addend.clear_gradient()
    return rows


def add_up_shards(
    rows: Tensor, x: Tensor, form: Form, own: int, seed: int | None, settle: bool
) -> Tensor:
    out, (rotation, rotates) = form.rows(1, x.device), _rotation(form)
    grid, each = _tiling(form, form.groups)
    _add_up[grid](
        *_pointers(rows), x, *_pointers(out), *_sizes(form, form.numel, form.shards), own,
        form.largest_scale, mix_offset(seed or 0), rotation, each, form.group, form.bits,
        seed is not None, rotates, settle, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return out[0]


def dequantise_shards(rows: Tensor, form: Form, out: Tensor, divisor: int, shard: int) -> Tensor:
    rotation, rotates = _rotation(form)
    offset = shard * form.groups * form.group
    grid, each = _tiling(form, len(rows) * form.groups)
    _dequantise[grid](
        *_pointers(rows), out, float(divisor), offset, *_sizes(form, out.numel(), len(rows)),
        rotation, each, form.group, form.bits, rotates, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return out
