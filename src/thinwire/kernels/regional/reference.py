"""Regions in torch."""

import torch
from torch import Tensor

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
    parts = (tally.to(form.tally), indices.to(form.offset))
    return torch.cat([part.contiguous().view(torch.uint8) for part in parts])


def write_rows(indices: Tensor, rows: int, form: Form) -> Tensor:
    return torch.stack([write(row, rows, form) for row in indices])


def read(body: Tensor, count: int, rows: int, form: Form) -> tuple[Tensor, Tensor]:
    table_end = form.regions(rows) * form.tally.itemsize
    tally = body[:table_end].view(form.tally).to(torch.int64)
    offsets = body[table_end:].view(form.offset).to(torch.int64)
    whole = ((tally >= 0) & (tally <= count)).all() & (tally.sum() == count)
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
    tally = bodies[:, :table_end].contiguous().view(form.tally).to(torch.int64)
    offsets = bodies[:, table_end:].contiguous().view(form.offset).to(torch.int64)
    ends = tally.cumsum(1)
    places = torch.arange(count, device=bodies.device).expand(len(bodies), count).contiguous()
    region = torch.searchsorted(ends, places, right=True)
    there = region < ends.shape[1]
    indices = torch.where(there, (region << form.bits) | (offsets & form.mask), PADDING)
    ascending = (indices[:, 1:] > indices[:, :-1]) | ~there[:, 1:]
    counted = ((tally >= 0) & (tally <= count)).all() & (ends[:, -1:] <= count).all()
    inside = ((indices >= 0) & (indices < rows)) | ~there
    return indices, counted & ascending.all() & inside.all()
