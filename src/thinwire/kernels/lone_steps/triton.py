"""Steps as long as those of all ranks together, on CUDA: all parameters in one launch."""

from collections.abc import Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import divide

TILE = 4096
WARPS = 8


@triton.jit(do_not_specialize=["rate", "eps", "signal_share", "square_share"])
def _step(table, scales, rate, eps, signal_share, square_share, TILE: tl.constexpr):
    """A row of the table: where parameter, mean and square begin, and how many elements there are.

    Each operation is rounded as torch's are.
    """
    row = table + tl.program_id(0).to(tl.int64) * 4
    pointer: tl.constexpr = tl.pointer_type(tl.float32)
    p = tl.load(row).to(pointer)
    i = tl.arange(0, TILE)
    there = i < tl.load(row + 3)
    mean = tl.load(tl.load(row + 1).to(pointer) + i, mask=there, other=0) * tl.load(scales)
    square = tl.load(tl.load(row + 2).to(pointer) + i, mask=there, other=0) * tl.load(scales + 1)
    signal = mean * mean
    joint = tl.maximum(signal * signal_share + square * square_share, signal)
    longer = divide(mean, tl.sqrt_rn(joint) + eps) - divide(mean, tl.sqrt_rn(square) + eps)
    tl.store(p + i, tl.load(p + i, mask=there, other=0) - longer * rate, mask=there)


def lone_steps(
    parameters: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    scales: Tensor,
    rate: float,
    eps: float,
    ranks: int,
) -> None:
    places = tuple(
        (p.data_ptr(), m.data_ptr(), v.data_ptr(), p.numel())
        for p, m, v in zip(parameters, means, squares, strict=True)
    )
    table = _table(places, scales.device)
    if len(table):
        _step[(len(table),)](
            table, scales, rate, eps, 1 - 1 / ranks, 1 / ranks, TILE, num_warps=WARPS,
            enable_fp_fusion=False,
        )  # fmt: skip


@lru_cache(maxsize=16)
def _table(places: tuple[tuple[int, int, int, int], ...], device: torch.device) -> Tensor:
    """A row for each tile. Kept: an optimiser's tensors stay where they are."""
    rows = [
        (p + 4 * start, m + 4 * start, v + 4 * start, min(TILE, count - start))
        for p, m, v, count in places
        for start in range(0, count, TILE)
    ]
    return torch.tensor(rows, dtype=torch.int64).view(-1, 4).to(device)
