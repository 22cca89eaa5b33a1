"""Regions in torch."""

import torch
from torch import Tensor

from thinwire.kernels.regional.form import Form


def write(indices: Tensor, rows: int, form: Form) -> Tensor:
    """searchsorted and not bincount, which makes the host wait for a GPU."""
    starts = torch.arange(form.regions(rows), device=indices.device) << form.bits
    ends = torch.searchsorted(indices, starts[1:])
    tally = ends.diff(
        prepend=ends.new_zeros(min(1, starts.numel())),
        append=ends.new_full((min(1, starts.numel()),), indices.numel()),
    )
    parts = (tally.to(form.tally), indices.to(form.offset))
    return torch.cat([part.contiguous().view(torch.uint8) for part in parts])


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
