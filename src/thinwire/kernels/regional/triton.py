"""Regions on CUDA: one launch writes counts and offsets, one reads and checks them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._lists import count_below
from thinwire.kernels.regional.form import Form
from thinwire.kernels.regional.reference import offsets_of, pack_rows
from thinwire.types import PADDING

BLOCK = 512
_PADDING = tl.constexpr(PADDING)


@triton.jit(
    do_not_specialize=[
        "count", "rows", "regions", "bits", "steps", "tally_stride", "offset_stride", "end_stride"
    ]
)  # fmt: skip
def _write(
    indices, tally, offsets, ends, count, rows, regions, bits, steps, tally_stride, offset_stride,
    end_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """The first programs write offsets, the others counts; into one body in each row.

    The first of all also writes the zero at its end, if there is to be one.
    """
    program = tl.program_id(0).to(tl.int64)
    body = tl.program_id(1).to(tl.int64)
    indices += body * count
    tally += body * tally_stride
    offsets += body * offset_stride
    if ends is not None:
        tl.store(ends + body * end_stride, tl.zeros((), tl.uint8), mask=program == 0)
    listing = tl.cdiv(count, BLOCK)
    if program < listing:
        i = program * BLOCK + tl.arange(0, BLOCK)
        index = tl.load(indices + i, mask=i < count, other=0)
        tl.store(offsets + i, index.to(offsets.dtype.element_ty), mask=i < count)
    else:
        region = (program - listing) * BLOCK + tl.arange(0, BLOCK)
        first = count_below(indices, count, region << bits, steps)
        # Where the last one ends may be 2^63; behind the rows there is only padding.
        after = tl.where(region == regions - 1, rows, (region + 1) << bits)
        end = count_below(indices, count, after, steps)
        tl.store(tally + region, (end - first).to(tally.dtype.element_ty), mask=region < regions)


@triton.jit(
    do_not_specialize=[
        "count", "rows", "regions", "bits", "mask", "steps", "tally_stride", "offset_stride",
        "last_stride",
    ]
)  # fmt: skip
def _read(
    tally, ends, offsets, lasts, indices, sound, count, rows, regions, bits, mask, steps,
    tally_stride, offset_stride, last_stride, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The first programs read offsets, the others check counts; of one body in each row.

    These also look for the zero behind it, if there has to be one.
    """
    program = tl.program_id(0).to(tl.int64)
    body = tl.program_id(1).to(tl.int64)
    tally += body * tally_stride
    offsets += body * offset_stride
    ends += body * regions
    indices += body * count
    listed = tl.load(ends + regions - 1)
    listing = tl.cdiv(count, BLOCK)
    if program < listing:
        i = program * BLOCK + tl.arange(0, BLOCK)
        region = count_below(ends, regions, i + 1, steps)
        index = (region << bits) | (tl.load(offsets + i, mask=i < count, other=0) & mask)
        tl.store(indices + i, tl.where(i < listed, index, _PADDING), mask=i < count)
        begins = i == tl.load(ends + region - 1, mask=(i < count) & (region > 0), other=0)
        before = tl.load(offsets + i - 1, mask=(i < count) & (i > 0), other=0) & mask
        bad = (index < 0) | (index >= rows) | ((begins == 0) & ((index & mask) <= before))
        bad &= (i < count) & (i < listed)
    else:
        region = (program - listing) * BLOCK + tl.arange(0, BLOCK)
        there = region < regions
        held = tl.load(tally + region, mask=there, other=0).to(tl.int64)
        wrong = (listed > count) if PADDED else (listed != count)
        bad = there & ((held < 0) | (held > count) | wrong)
        if lasts is not None:
            bad |= tl.load(lasts + body * last_stride) != 0
    if tl.max(bad.to(tl.int32)) > 0:
        tl.store(sound, False)


def write(indices: Tensor, rows: int, form: Form) -> Tensor:
    return write_rows(indices[None], rows, form)[0]


def write_rows(indices: Tensor, rows: int, form: Form) -> Tensor:
    # Aligned, as offsets of 64 bits ask for: a body may have an odd number of counts.
    size, length = len(indices), form.size(indices.shape[1], rows)
    room = torch.empty(size, -(-length // 8) * 8, dtype=torch.uint8, device=indices.device)
    _write_all(indices, rows, form, room[:, :length], None)
    return room[:, :length]


def write_parts(indices: Tensor, rows: int, form: Form, parts: Tensor) -> None:
    _write_all(indices, rows, form, parts[:, :-1], parts[:, -1])


def _write_all(indices: Tensor, rows: int, form: Form, bodies: Tensor, ends: Tensor | None) -> None:
    (size, count), regions = indices.shape, form.regions(rows)
    if not regions:
        if ends is not None:
            ends.zero_()
        return
    table_end = regions * form.tally.itemsize
    tally = bodies[:, :table_end].view(form.tally)
    if form.packed:
        offsets = torch.empty(size, count, dtype=form.offset, device=indices.device)
    else:
        offsets = bodies[:, table_end:].view(form.offset)
    grid = (triton.cdiv(count, BLOCK) + triton.cdiv(regions, BLOCK), size)
    _write[grid](
        indices.contiguous(), tally, offsets, ends, count, rows, regions, form.bits,
        count.bit_length(), tally.stride(0), offsets.stride(0),
        0 if ends is None else ends.stride(0), BLOCK,
    )  # fmt: skip
    if form.packed:
        bodies[:, table_end:] = pack_rows(offsets, form)  # whose other bits are left out


def read(body: Tensor, count: int, rows: int, form: Form) -> tuple[Tensor, Tensor]:
    indices, sound = _read_all(body[None], None, count, rows, form, False)
    return indices[0], sound


def read_rows(bodies: Tensor, count: int, rows: int, form: Form) -> tuple[Tensor, Tensor]:
    return _read_all(bodies, None, count, rows, form, True)


def read_parts(parts: Tensor, count: int, rows: int, form: Form) -> tuple[Tensor, Tensor]:
    return _read_all(parts[:, :-1], parts[:, -1], count, rows, form, True)


def _read_all(
    bodies: Tensor, lasts: Tensor | None, count: int, rows: int, form: Form, padded: bool
) -> tuple[Tensor, Tensor]:
    regions, size = form.regions(rows), len(bodies)
    table_end = regions * form.tally.itemsize
    indices = torch.empty(size, count, dtype=torch.int64, device=bodies.device)
    sound = torch.ones((), dtype=torch.bool, device=bodies.device)
    if not regions:
        return indices, sound if lasts is None else (lasts == 0).all()
    tally = _viewed(bodies[:, :table_end], form.tally)
    spare = None
    if form.packed:
        offsets, spare = offsets_of(bodies[:, table_end:], count, form)
    else:
        offsets = _viewed(bodies[:, table_end:], form.offset)
    ends = tally.cumsum(1, dtype=torch.int64)
    grid = (triton.cdiv(count, BLOCK) + triton.cdiv(regions, BLOCK), size)
    _read[grid](
        tally, ends, offsets, lasts, indices, sound, count, rows, regions, form.bits, form.mask,
        regions.bit_length(), tally.stride(0), offsets.stride(0),
        0 if lasts is None else lasts.stride(0), padded, BLOCK,
    )  # fmt: skip
    return indices, sound if spare is None else sound & spare


def _viewed(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Without a copy; several rows lie a multiple of 8 bytes apart, as wires do."""
    return rows[0].view(dtype)[None] if len(rows) == 1 else rows.view(dtype)
