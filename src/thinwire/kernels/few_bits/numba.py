"""Few bits on the CPU: one pass over memory, what is to be added included."""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels import _threads
from thinwire.kernels._numba import Array, add, offset_of, summands, view
from thinwire.kernels.addend import Addend
from thinwire.kernels.few_bits.form import Form
from thinwire.kernels.few_bits.groups import (
    Seeds,
    copy,
    fill,
    pack,
    rotate,
    rotate_back,
    round_group,
    settle,
    stored,
    unpack,
    widened,
)

TURN = 1 << 16  # elements


@njit(cache=True, nogil=True)
def _quantise(
    x: Array, codes: Array, scales: Array, own: int, settles: bool, levels: Any,
    largest: np.float32, seeds: Seeds, scratch: Array, words: Array, small: Array, begin: int,
    end: int,
) -> None:  # fmt: skip
    """Groups `begin` to `end`, counted over all shards; of codes and scales a row for a shard."""
    group, groups = small.size, scales.shape[1]
    values, size = scratch[1:], codes.shape[1] // groups
    before, spare = np.empty_like(values), np.empty_like(values)
    for g in range(begin, end):
        shard, at = g // groups, g % groups
        mine = x[min(g * group, x.size) : min((g + 1) * group, x.size)]
        fill(mine, values)
        if seeds[2]:
            copy(values, before)
            rotate(values, spare, g * group, seeds)
        scale, strange = round_group(scratch, words, small, g * group, levels, largest, seeds)
        pack(small, codes[shard, at * size : (at + 1) * size], 2 * size == group)
        scales[shard, at] = stored(scale, strange)
        if settles and shard != own:
            settle(mine, before, values, spare, small, scale, strange, g * group, seeds)


@njit(cache=True, nogil=True)
def _add_up(
    codes: Array, scales: Array, x: Array, out_codes: Array, out_scales: Array, own: int,
    settles: bool, levels: Any, largest: np.float32, seeds: Seeds, scratch: Array, words: Array,
    small: Array, begin: int, end: int,
) -> None:  # fmt: skip
    """Groups `begin` to `end` of the own shard."""
    group, groups, values = small.size, scales.shape[1], scratch[1:]
    size, kind = codes.shape[1] // groups, x.dtype.type
    exact, spare = np.empty_like(values), np.empty_like(values)
    for at in range(begin, end):
        g = own * groups + at
        mine = x[min(g * group, x.size) : min((g + 1) * group, x.size)]
        fill(mine, exact)
        rotate(exact, spare, g * group, seeds)
        for i in range(group):
            values[i] = 0
        for rank in range(codes.shape[0]):
            if rank == own:
                for i in range(group):
                    values[i] += exact[i]
            else:
                unpack(codes[rank, at * size : (at + 1) * size], small, 2 * size == group)
                wide = kind(widened(scales[rank, at]))
                for i in range(group):
                    values[i] += kind(small[i]) * wide
        scale, strange = round_group(scratch, words, small, g * group, levels, largest, seeds)
        pack(small, out_codes[0, at * size : (at + 1) * size], 2 * size == group)
        out_scales[0, at] = stored(scale, strange)
        if settles:
            rotate_back(values, spare, g * group, seeds)
            copy(values, mine)


@njit(cache=True, nogil=True)
def _dequantise(
    codes: Array, scales: Array, out: Array, divisor: Any, first: int, seeds: Seeds,
    scratch: Array, small: Array, begin: int, end: int,
) -> None:  # fmt: skip
    """Groups `begin` to `end` of the rows, of which the first element is number `first`."""
    group, groups, kind = small.size, scales.shape[1], out.dtype.type
    values, size = scratch[1:], codes.shape[1] // groups
    spare = np.empty_like(values)
    for g in range(begin, end):
        shard, at = g // groups, g % groups
        mine = out[min(g * group, out.size) : min((g + 1) * group, out.size)]
        unpack(codes[shard, at * size : (at + 1) * size], small, 2 * size == group)
        wide = kind(widened(scales[shard, at]))
        for i in range(group):
            values[i] = kind(small[i]) * wide
        rotate_back(values, spare, first + g * group, seeds)
        for i in range(mine.size):
            mine[i] = values[i] / divisor


def _parts(form: Form, groups: int) -> list[tuple[int, int]]:
    """Groups from where to where, for each thread."""
    pieces = _threads.pieces(groups * form.group)
    return [(-(-first // form.group), -(-end // form.group)) for first, end in pieces]


def _seeds(form: Form, seed: int | None) -> Seeds:
    rotates = form.rotation is not None
    by = offset_of(form.rotation or 0)
    return seed is not None, offset_of(seed or 0), rotates, by


def _views(rows: Tensor, form: Form) -> tuple[Array, Array]:
    codes: Array = rows[:, : form.code_bytes].numpy()
    return codes, form.scales(rows).view(torch.uint16).numpy()


def _scratch(x: Tensor, form: Form) -> tuple[Array, Array, Array]:
    """A place for the largest magnitude and a group behind it, the same as words, and codes."""
    values = torch.empty(1 + form.group, dtype=x.dtype).numpy()
    words = values.view(np.uint32 if x.dtype == torch.float32 else np.uint64)
    return values, words, np.empty(form.group, np.int8)


def _limits(x: Tensor, form: Form) -> tuple[Any, np.float32]:
    return view(x[:0]).dtype.type(form.levels), np.float32(form.largest_scale)


def quantise_shards(
    x: Tensor, form: Form, own: int, seed: int | None, settle: bool, addend: Addend | None
) -> Tensor:
    """In turns that fit a cache: adding is compiled for each dtype of gradients, the rest once."""
    rows = form.rows(form.shards, x.device)
    flat, added = view(x), summands(x, addend)
    given = (flat, *_views(rows, form), own, settle, *_limits(x, form), _seeds(form, seed))
    each = max(1, TURN // form.group)

    def work(_: int, begin: int, end: int) -> None:
        scratch = _scratch(x, form)
        for first in range(begin, end, each):
            last = min(first + each, end)
            if addend is not None:
                low, high = (min(g * form.group, flat.size) for g in (first, last))
                add(flat, *added, low, high)
            _quantise(*given, *scratch, first, last)

    _threads.run(work, _parts(form, form.shards * form.groups))
    return rows


def add_up_shards(
    rows: Tensor, x: Tensor, form: Form, own: int, seed: int | None, settle: bool
) -> Tensor:
    out = form.rows(1, x.device)
    given = (*_views(rows, form), view(x), *_views(out, form))
    fixed = (own, settle, *_limits(x, form), _seeds(form, seed))
    _threads.run(
        lambda _, begin, end: _add_up(*given, *fixed, *_scratch(x, form), begin, end),
        _parts(form, form.groups),
    )
    return out[0]


def dequantise_shards(rows: Tensor, form: Form, out: Tensor, divisor: int, shard: int) -> Tensor:
    flat, codes, seeds = view(out), _views(rows, form), _seeds(form, None)
    over, first = flat.dtype.type(divisor), shard * form.groups * form.group
    _threads.run(
        lambda _, begin, end: _dequantise(
            *codes, flat, over, first, seeds, *_scratch(out, form)[::2], begin, end
        ),
        _parts(form, len(rows) * form.groups),
    )
    return out
