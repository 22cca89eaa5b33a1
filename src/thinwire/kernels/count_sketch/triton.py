"""Count sketches on CUDA: elements sorted by bucket, then a lane for each bucket adds up its own.

Atomic adds would take one pass less and give other bits every time. The sort is stable, so that a
bucket's elements come in the order they were given in. A lane's loop is as long as the fullest
bucket of its block: about 1/λ elements on average, and rarely more than ten times as many.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import hash_to_range, mix64, mix_offset
from thinwire.kernels.count_sketch import reference

BLOCK = 256


@triton.jit
def _signed(x, index, offset):
    return tl.where((mix64(index, offset) & 1) != 0, x * -1.0, x)  # Triton's -x is 0 - x: never -0


@triton.jit(do_not_specialize=["count", "buckets", "offset"])
def _hash(indices, bucket_of, count, buckets, offset, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + i, mask=i < count, other=0)
    bucket = hash_to_range(index, buckets, offset).to(tl.int32)
    tl.store(bucket_of + i, bucket, mask=i < count)


@triton.jit(do_not_specialize=["buckets", "offset"])
def _add_up(indices, values, order, starts, row, buckets, offset, BLOCK: tl.constexpr):
    bucket = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(starts + bucket, mask=bucket < buckets, other=0)
    end = tl.load(starts + bucket + 1, mask=bucket < buckets, other=0)
    total = tl.zeros([BLOCK], dtype=row.dtype.element_ty)
    for turn in range(tl.max(end - first)):
        here = first + turn < end
        which = tl.load(order + first + turn, mask=here, other=0)
        index = tl.load(indices + which, mask=here, other=0)
        value = tl.load(values + which, mask=here, other=0)
        total += tl.where(here, _signed(value, index, offset), 0)
    tl.store(row + bucket, total, mask=bucket < buckets)


@triton.jit
def _estimate(table, offsets, j, index, inside, buckets):
    """What row j says of each index."""
    offset = tl.load(offsets + j)
    at = j * buckets.to(tl.int64) + hash_to_range(index, buckets, offset)
    return _signed(tl.load(table + at, mask=inside, other=0), index, offset)


@triton.jit
def _median(table, offsets, index, inside, buckets, ROWS: tl.constexpr):
    """The estimate that half of the others come before; of equal ones, the earlier rows do."""
    middle = tl.zeros(index.shape, dtype=table.dtype.element_ty)
    for j in tl.static_range(ROWS):
        mine = _estimate(table, offsets, j, index, inside, buckets)
        before = tl.zeros(index.shape, dtype=tl.int32)
        for k in tl.static_range(ROWS):
            other = _estimate(table, offsets, k, index, inside, buckets)
            if k < j:
                before += (other <= mine).to(tl.int32)
            elif k > j:
                before += (other < mine).to(tl.int32)
        middle = tl.where(before == ROWS // 2, mine, middle)
    return middle


@triton.jit
def _mean(table, offsets, inverse, index, inside, buckets, ROWS: tl.constexpr):
    total = _estimate(table, offsets, 0, index, inside, buckets)
    for j in tl.static_range(1, ROWS):
        total += _estimate(table, offsets, j, index, inside, buckets)
    return total * tl.load(inverse)


@triton.jit(do_not_specialize=["numel", "buckets"])
def _recover(table, offsets, inverse, out, numel, buckets, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of the rows' estimates; without an `inverse` of their number, the median."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < numel
    if inverse is None:
        estimate = _median(table, offsets, i, inside, buckets, ROWS)
    else:
        estimate = _mean(table, offsets, inverse, i, inside, buckets, ROWS)
    tl.store(out + i, estimate, mask=inside)


def project(
    indices: Tensor, values: Tensor, rows: int, buckets: int, seed: int, four_wise: bool = False
) -> Tensor:
    if four_wise:
        return reference.project(indices, values, rows, buckets, seed, four_wise)
    table = torch.empty(rows, buckets, dtype=values.dtype, device=values.device)
    bucket_of = torch.empty(indices.numel(), dtype=torch.int32, device=values.device)
    edges = torch.arange(buckets + 1, dtype=torch.int32, device=values.device)
    for row in range(rows):
        offset = mix_offset(seed + row)
        if indices.numel():
            _hash[(triton.cdiv(indices.numel(), BLOCK),)](
                indices, bucket_of, indices.numel(), buckets, offset, BLOCK
            )
        ordered, order = torch.sort(bucket_of, stable=True)
        starts = torch.searchsorted(ordered, edges)
        _add_up[(triton.cdiv(buckets, BLOCK),)](
            indices, values, order, starts, table[row], buckets, offset, BLOCK
        )
    return table


def recover(table: Tensor, numel: int, seed: int, decode: str, four_wise: bool = False) -> Tensor:
    if four_wise:
        return reference.recover(table, numel, seed, decode, four_wise)
    rows, buckets = table.shape
    out = torch.empty(numel, dtype=table.dtype, device=table.device)
    offsets = torch.tensor([mix_offset(seed + row) for row in range(rows)], device=table.device)
    if not numel:
        return out
    inverse = None
    if decode == "mean":
        inverse = torch.tensor(1 / rows, dtype=table.dtype, device=table.device)
    _recover[(triton.cdiv(numel, BLOCK),)](
        table, offsets, inverse, out, numel, buckets, rows, BLOCK, enable_fp_fusion=False
    )
    return out
