"""Few bits in torch."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from thinwire.kernels.addend import Addend
from thinwire.kernels.few_bits.form import SMALLEST, Form
from thinwire.rng import hash_to_unit, mix64


def quantise_shards(
    x: Tensor, form: Form, own: int, seed: int | None, settle: bool, addend: Addend | None
) -> Tensor:
    if addend:
        addend.add_to(x)
    groups, places = _groups(x, form), _places(0, form.shards, form, x.device)
    codes, scales, bad = _rounded(_rotated(groups, places, form), places, form, seed)
    rows = form.rows(form.shards, x.device)
    _write(rows, codes, scales, bad, form)
    if settle:
        left = groups - _rotated_back(codes * scales, places, form)
        left.masked_fill_(bad, 0)
        mine = slice(own * form.groups, (own + 1) * form.groups)
        left[mine] = groups[mine]
        x.copy_(left.view(-1)[: form.numel])
    return rows


def add_up_shards(
    rows: Tensor, x: Tensor, form: Form, own: int, seed: int | None, settle: bool
) -> Tensor:
    places = _places(own, 1, form, x.device)
    mine = slice(own * form.groups, (own + 1) * form.groups)
    total = x.new_zeros(form.groups, form.group)
    for rank, row in enumerate(rows):
        if rank == own:
            total += _rotated(_groups(x, form)[mine], places, form)
        else:
            total += _read(row[None], form, x.dtype)
    codes, scales, bad = _rounded(total, places, form, seed)
    out = form.rows(1, x.device)
    _write(out, codes, scales, bad, form)
    if settle:
        left = _rotated_back(total - codes * scales, places, form).masked_fill_(bad, 0)
        first, end = form.span(own)
        x[first:end] = left.view(-1)[: end - first]
    return out[0]


def dequantise_shards(rows: Tensor, form: Form, out: Tensor, divisor: int, shard: int) -> Tensor:
    places = _places(shard, len(rows), form, out.device)
    values = _rotated_back(_read(rows, form, out.dtype), places, form)
    return torch.div(values.view(-1)[: out.numel()], divisor, out=out)


def _groups(x: Tensor, form: Form) -> Tensor:
    """A group in each row, zeros behind the last element."""
    whole = form.shards * form.groups * form.group
    return pad(x, (0, whole - form.numel)).view(-1, form.group)


def _places(shard: int, shards: int, form: Form, device: torch.device) -> Tensor:
    """The numbers of the elements of some shards, group by group."""
    length = form.groups * form.group
    places = torch.arange(shard * length, (shard + shards) * length, device=device)
    return places.view(-1, form.group)


def _rounded(
    groups: Tensor, places: Tensor, form: Form, seed: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scales (0 where nothing travels), and which groups hold what is not finite."""
    magnitudes = groups.abs()
    most = torch.where(magnitudes < torch.inf, magnitudes, torch.inf).amax(1, keepdim=True)
    bad = most == torch.inf
    exact = (most / form.levels).float().view(torch.int32)
    scales = ((exact + 0xFFFF) & ~0xFFFF).view(torch.float32).clamp(max=form.largest_scale)
    scales = scales.masked_fill(bad | (most < SMALLEST), 0).to(groups.dtype)
    inverse = torch.where(scales > 0, 1 / scales, 0)
    heights = groups.masked_fill(bad, 0) * inverse
    floor = heights.floor()
    threshold = 0.5 if seed is None else hash_to_unit(places, seed)
    codes = floor + (heights - floor > threshold)
    return codes.clamp_(-form.levels, form.levels), scales, bad


def _write(rows: Tensor, codes: Tensor, scales: Tensor, bad: Tensor, form: Form) -> None:
    small = codes.to(torch.int8).view(len(rows), -1)
    if form.bits == 4:
        small = (small[:, ::2] & 15) | (small[:, 1::2] << 4)
    rows[:, : form.code_bytes] = small.view(torch.uint8)
    form.scales(rows)[:] = scales.masked_fill(bad, torch.nan).view(len(rows), -1)


def _read(rows: Tensor, form: Form, dtype: torch.dtype) -> Tensor:
    """What the groups of these shards hold."""
    codes = rows[:, : form.code_bytes].contiguous().view(torch.int8)
    if form.bits == 4:
        codes = torch.stack(((codes << 4) >> 4, codes >> 4), dim=2)
    scales = form.scales(rows).reshape(-1, 1)
    return codes.reshape(-1, form.group).to(dtype) * scales.to(dtype)


def _rotated(groups: Tensor, places: Tensor, form: Form) -> Tensor:
    """H·D·x of each group."""
    if form.rotation is None:
        return groups
    return _hadamard(_with_signs(groups, places, form.rotation))


def _rotated_back(groups: Tensor, places: Tensor, form: Form) -> Tensor:
    if form.rotation is None:
        return groups
    return _with_signs(_hadamard(groups) / form.group, places, form.rotation)


def _with_signs(groups: Tensor, places: Tensor, seed: int) -> Tensor:
    return torch.where(mix64(places, seed) < 0, -groups, groups)


def _hadamard(groups: Tensor) -> Tensor:
    """By the fast Walsh-Hadamard transform: pairs at a distance of 1, 2, 4 … elements."""
    count, group = groups.shape
    distance = 1
    while distance < group:
        pairs = groups.view(count, group // (2 * distance), 2, distance)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        groups = torch.stack((first + second, first - second), dim=2).view(count, group)
        distance *= 2
    return groups
