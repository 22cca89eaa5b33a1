"""The sum of sparse parts on CUDA: one sort, then each index adds up its run.

The sort is stable, so within a run of equal indices the values stand in the order of the parts.
Merge paths would spare the sort of two parts, but not that of many, for which this is as well.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from thinwire.kernels.region_reduce.reference import common
from thinwire.types import Sparse

__all__ = ["common", "region_reduce"]

BLOCK = 1024


@triton.jit
def _first_of_runs(indices, total, BLOCK: tl.constexpr):
    """This program's places, their indices, and which of them begin a run."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + at, mask=at < total, other=0)
    before = tl.load(indices + at - 1, mask=(at < total) & (at > 0), other=-1)
    return at, index, (at < total) & (index != before)


@triton.jit(do_not_specialize=["total"])
def _count(indices, total, counts, BLOCK: tl.constexpr):
    _, _, first = _first_of_runs(indices, total, BLOCK)
    tl.store(counts + tl.program_id(0), tl.sum(first.to(tl.int64)))


@triton.jit(do_not_specialize=["total"])
def _add_up(
    indices, order, values, total, ends, out_indices, out_values,
    FROM_ZERO: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at, index, first = _first_of_runs(indices, total, BLOCK)
    here = first.to(tl.int64)
    place = tl.load(ends + tl.program_id(0)) - tl.sum(here) + tl.cumsum(here) - here
    tl.store(out_indices + place, index.to(tl.int64), mask=first)
    sums = tl.load(values + tl.load(order + at, mask=first, other=0), mask=first, other=0)
    if FROM_ZERO:
        sums += 0.0  # -0.0 becomes 0.0
    goes_on = first
    while tl.max(goes_on.to(tl.int32)) > 0:
        at += 1
        goes_on &= at < total
        goes_on &= tl.load(indices + at, mask=goes_on, other=-1) == index
        value = tl.load(values + tl.load(order + at, mask=goes_on, other=0), mask=goes_on, other=0)
        sums = tl.where(goes_on, sums + value, sums)
    tl.store(out_values + place, sums, mask=first)


def sum_runs(parts: Sequence[Sparse], numel: int, from_zero: bool) -> Sparse:
    """The parts' sum in their order: from zero on, or from the first value of each index on."""
    # Half the bytes sort in half the time.
    key = torch.int32 if numel <= 1 << 31 else torch.int64
    indices, order = torch.cat([part.indices for part in parts]).to(key).sort(stable=True)
    values = torch.cat([part.values for part in parts])
    total = values.numel()
    blocks = triton.cdiv(total, BLOCK)
    counts = torch.empty(blocks, dtype=torch.int64, device=values.device)
    out_indices, out_values = order.new_empty(total), torch.empty_like(values)
    if not total:
        return Sparse(out_indices, out_values, numel)
    _count[(blocks,)](indices, total, counts, BLOCK)
    ends = counts.cumsum(0)
    _add_up[(blocks,)](
        indices, order, values, total, ends, out_indices, out_values, from_zero, BLOCK
    )
    count = int(ends[-1])  # the one place where the host waits
    return Sparse(out_indices[:count], out_values[:count], numel)


def region_reduce(parts: Sequence[Sparse], numel: int) -> Sparse:
    return sum_runs(parts, numel, from_zero=True)
