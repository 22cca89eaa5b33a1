"""Regions in torch."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from thinwire.kernels.pack_bits import pack_bits, unpack_bits
from thinwire.kernels.regional.form import Form
from thinwire.types import PADDING


def write(indices: Tensor, rows: int, form: Form) -> Tensor:
    """searchsorted and not bincount, which makes the host wait for a GPU."""
    starts = torch.arange(form.regions(rows), device=indices.device) << form.bits
    ends = torch.searchsorted(indices, starts[1:])
    tally = ends.diff(
        prepend=ends.new_zeros(min(1, starts.numel())),
        append=torch.searchsorted(indices, starts.new_full((min(1, starts.numel()),), rows)),
    )
    if form.packed:
        body = pack_rows((indices & form.mask).int()[None], form)[0]
        return torch.cat((tally.to(form.tally).view(torch.uint8), body))
    parts = (tally.to(form.tally), indices.to(form.offset))
    return torch.cat([part.contiguous().view(torch.uint8) for part in parts])


def write_rows(indices: Tensor, rows: int, form: Form) -> Tensor:
    return torch.stack([write(row, rows, form) for row in indices])


def write_parts(indices: Tensor, rows: int, form: Form, parts: Tensor) -> None:
    parts[:, :-1] = write_rows(indices, rows, form)
    parts[:, -1] = 0


def read(body: Tensor, count: int, rows: int, form: Form) -> tuple[Tensor, Tensor]:
    table_end = form.regions(rows) * form.tally.itemsize
    tally = body[:table_end].view(form.tally).to(torch.int64)
    offsets, spare = offsets_of(body[None, table_end:], count, form)
    offsets = offsets[0].to(torch.int64)
    whole = ((tally >= 0) & (tally <= count)).all() & (tally.sum() == count) & spare
    if not bool(whole):
        return offsets, whole
    region = torch.arange(tally.numel(), device=body.device) << form.bits
    indices = region.repeat_interleave(tally, output_size=count)
    indices |= offsets & form.mask
    ascending = (indices[1:] > indices[:-1]).all()
    return indices, ascending & (indices[:1] >= 0).all() & (indices[-1:] < rows).all()


def read_rows(bodies: Tensor, count: int, rows: int, form: Form) -> tuple[Tensor, Tensor]:
    """searchsorted and not repeat_interleave: it needs no sum to be right."""
    table_end = form.regions(rows) * form.tally.itemsize
    tally = _viewed(bodies[:, :table_end], form.tally).to(torch.int64)
    offsets, spare = offsets_of(bodies[:, table_end:], count, form)
    ends = tally.cumsum(1)
    places = torch.arange(count, device=bodies.device).expand(len(bodies), count).contiguous()
    region = torch.searchsorted(ends, places, right=True)
    there = region < ends.shape[1]
    offsets = offsets.to(torch.int64) & form.mask
    indices = torch.where(there, (region << form.bits) | offsets, PADDING)
    ascending = (indices[:, 1:] > indices[:, :-1]) | ~there[:, 1:]
    counted = ((tally >= 0) & (tally <= count)).all() & (ends[:, -1:] <= count).all()
    inside = ((indices >= 0) & (indices < rows)) | ~there
    return indices, spare & counted & ascending.all() & inside.all()


def read_parts(parts: Tensor, count: int, rows: int, form: Form) -> tuple[Tensor, Tensor]:
    indices, sound = read_rows(parts[:, :-1], count, rows, form)
    return indices, sound & (parts[:, -1] == 0).all()


def pack_rows(offsets: Tensor, form: Form) -> Tensor:
    """The bytes of int32 offsets, a row of them in each."""
    filled = pad(offsets, (0, form.slots(offsets.shape[1]) - offsets.shape[1]))
    return pack_bits(filled.reshape(-1), form.bits).view(len(offsets), -1)


def offsets_of(bodies: Tensor, count: int, form: Form) -> tuple[Tensor, Tensor]:
    """The offsets of each row, and (0-D bool) whether what fills them up is zero."""
    if not form.packed:
        sound = torch.ones((), dtype=torch.bool, device=bodies.device)
        return _viewed(bodies, form.offset), sound
    slots = form.slots(count)
    unpacked = unpack_bits(bodies.reshape(-1), len(bodies) * slots, form.bits)
    rows = unpacked.view(len(bodies), slots)
    return rows[:, :count], (rows[:, count:] == 0).all()


def _viewed(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows' bytes as numbers, of a copy: a row may begin at any byte, and be the only one."""
    form = len(rows), rows.shape[1] // dtype.itemsize
    return rows.flatten().clone().view(dtype).view(form)
