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

BLOCK = 256


@triton.jit(do_not_specialize=["offset"])
def _signed(x: tl.tensor, index: tl.tensor, offset: tl.tensor) -> tl.tensor:
    return tl.where((mix64(index, offset) & 1) != 0, x * -1.0, x)  # Triton's -x is 0 - x: never -0


@triton.jit(do_not_specialize=["count", "buckets", "offset"])
def _hash(
    indices: tl.tensor,
    bucket_of: tl.tensor,
    count: tl.tensor,
    buckets: tl.tensor,
    offset: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + i, mask=i < count, other=0)
    bucket = hash_to_range(index, buckets, offset).to(tl.int32)
    tl.store(bucket_of + i, bucket, mask=i < count)


@triton.jit(do_not_specialize=["buckets", "offset"])
def _add_up(
    indices: tl.tensor,
    values: tl.tensor,
    order: tl.tensor,
    starts: tl.tensor,
    row: tl.tensor,
    buckets: tl.tensor,
    offset: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
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


@triton.jit(do_not_specialize=["buckets", "offset"])
def _estimate(
    row: tl.tensor, index: tl.tensor, inside: tl.tensor, buckets: tl.tensor, offset: tl.tensor
) -> tl.tensor:
    found = tl.load(row + hash_to_range(index, buckets, offset), mask=inside, other=0)
    return _signed(found, index, offset)


@triton.jit(do_not_specialize=["numel", "buckets"])
def _median(
    table: tl.tensor,
    offsets: tl.tensor,
    out: tl.tensor,
    numel: tl.tensor,
    buckets: tl.tensor,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """The estimate that half of the others come before; of equal ones, the earlier rows do."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < numel
    middle = tl.zeros([BLOCK], dtype=out.dtype.element_ty)
    for j in tl.static_range(ROWS):
        mine = _estimate(table + j * buckets.to(tl.int64), i, inside, buckets, tl.load(offsets + j))
        before = tl.zeros([BLOCK], dtype=tl.int32)
        for k in tl.static_range(ROWS):
            other = _estimate(
                table + k * buckets.to(tl.int64), i, inside, buckets, tl.load(offsets + k)
            )
            if k < j:
                before += (other <= mine).to(tl.int32)
            elif k > j:
                before += (other < mine).to(tl.int32)
        middle = tl.where(before == ROWS // 2, mine, middle)
    tl.store(out + i, middle, mask=inside)


@triton.jit(do_not_specialize=["numel", "buckets"])
def _mean(
    table: tl.tensor,
    offsets: tl.tensor,
    inverse: tl.tensor,
    out: tl.tensor,
    numel: tl.tensor,
    buckets: tl.tensor,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < numel
    total = _estimate(table, i, inside, buckets, tl.load(offsets))
    for j in tl.static_range(1, ROWS):
        row = table + j * buckets.to(tl.int64)
        total += _estimate(row, i, inside, buckets, tl.load(offsets + j))
    tl.store(out + i, total * tl.load(inverse), mask=inside)


def project(indices: Tensor, values: Tensor, rows: int, buckets: int, seed: int) -> Tensor:
    """See the package."""
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


def recover(table: Tensor, numel: int, seed: int, decode: str) -> Tensor:
    """See the package."""
    rows, buckets = table.shape
    out = torch.empty(numel, dtype=table.dtype, device=table.device)
    offsets = torch.tensor([mix_offset(seed + row) for row in range(rows)], device=table.device)
    if not numel:
        return out
    grid = (triton.cdiv(numel, BLOCK),)
    if decode == "median":
        _median[grid](table, offsets, out, numel, buckets, rows, BLOCK)
    else:
        inverse = torch.tensor(1 / rows, dtype=table.dtype, device=table.device)
        _mean[grid](
            table, offsets, inverse, out, numel, buckets, rows, BLOCK, enable_fp_fusion=False
        )
    return out
