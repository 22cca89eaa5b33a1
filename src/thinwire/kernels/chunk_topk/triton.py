"""The largest magnitudes of each chunk on CUDA: one program, one chunk, in registers.

Bit by bit from the highest, the k-th key is the largest number that k keys reach; then a sum over
those before says where each chosen element goes. Nothing is shared between programs.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# What a kernel takes are tensors and numbers.

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import ROW, accumulated, magnitude_key, summands
from thinwire.kernels.addend import Addend
from thinwire.kernels.chunk_topk.chunks import Chunks, table_on, total_of

FIELDS = tl.constexpr(3)


@triton.jit
def _kth(key, inside, k, BITS: tl.constexpr):
    """The k-th largest of the keys, whose lowest bit is zero: the sign was shifted out."""
    found = tl.zeros((), key.dtype)
    bit = tl.full((), 1, key.dtype) << (BITS - 1)
    for _ in range(BITS - 1):
        reaching = tl.sum((inside & (key >= (found | bit))).to(tl.int32))
        found = tl.where(reaching >= k, found | bit, found)
        bit >>= 1
    return found


@triton.jit
def _choose(
    x, grad, velocity, factor, bad, table, indices, values,
    BITS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    LANES: tl.constexpr = ROWS * ROW
    row = table + tl.program_id(0).to(tl.int64) * FIELDS
    start = tl.load(row)
    size = tl.load(row + 1) - start
    out = tl.load(row + 2)
    k = tl.load(row + FIELDS + 2) - out
    tile = accumulated(x, grad, velocity, factor, bad, start, size, ROWS)
    element = tl.reshape(tile, (LANES,))
    lane = tl.arange(0, LANES)
    inside = lane < size
    key = magnitude_key(element)
    kth = _kth(key, inside, k, BITS)
    larger = inside & (key > kth)
    equal = (inside & (key == kth)).to(tl.int32)
    ties = k - tl.sum(larger.to(tl.int32))
    chosen = larger | ((equal > 0) & (tl.cumsum(equal) <= ties))
    place = out + tl.cumsum(chosen.to(tl.int32)) - 1
    tl.store(indices + place, start + lane, mask=chosen)
    tl.store(values + place, element, mask=chosen)


def chunk_topk(x: Tensor, chunks: Chunks, addend: Addend | None = None) -> tuple[Tensor, Tensor]:
    table, total = table_on(chunks, x.device), total_of(chunks)
    indices = torch.empty(total, dtype=torch.int64, device=x.device)
    values = torch.empty(total, dtype=x.dtype, device=x.device)
    if len(table) > 1:
        rows = max(1, triton.next_power_of_2(chunks.length) // ROW.value)
        _choose[(len(table) - 1,)](
            x, *summands(x, addend), table, indices, values, 8 * x.element_size(), rows,
            num_warps=max(1, min(16, rows // 16)), enable_fp_fusion=False,
        )  # fmt: skip
    if addend:
        addend.clear_gradient()
    return indices, values
