"""Bins and their means on CUDA: a few groups a program, sums in the order of `row_sums`."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# What a kernel takes are tensors and numbers.

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.centroids import reference
from thinwire.kernels.chunk_codes.triton import (
    BLOCK,
    MOST_LANES,
    TILE,
    largest_of,
    places,
    row_sums,
)


@triton.jit(do_not_specialize=["count", "group", "groups", "all_groups"])
def _find(
    values, centroids, codes, count, group, groups, all_groups,
    ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place, in_group = places(group, LANES)
    inside = (number % groups * group)[:, None] + place[None, :]
    at = (number // groups * count)[:, None] + inside
    in_group = tl.broadcast_to(in_group[None, :], at.shape)
    there = in_group & (inside < count) & (number < all_groups)[:, None]
    x = tl.load(values + at, mask=there, other=0)
    largest = largest_of(x, there)
    finite = largest < float("inf")
    by = tl.where(finite & (largest > 0), largest, 1.0)
    share = x.to(tl.float64) / by[:, None]
    square = share * share
    members = tl.maximum(tl.sum(there.to(tl.int32), axis=1), 1).to(tl.float64)
    mean_square = row_sums(square, in_group, ROWS, LANES) / members
    outer = (square >= mean_square[:, None]).to(tl.int32)
    code = tl.where(x < 0, 1 - outer, 2 + outer)
    tl.store(codes + at, code, mask=there)
    for which in tl.static_range(4):
        mine = there & (code == which)
        total = row_sums(tl.where(mine, share, 0), in_group, ROWS, LANES)
        mean = total / tl.maximum(tl.sum(mine.to(tl.int32), axis=1), 1).to(tl.float64)
        mean = tl.minimum(tl.maximum(mean, -1.0), 1.0) * by
        # After the cast, which would make another NaN of it than the CPU has.
        mean = tl.where(finite, mean.to(centroids.dtype.element_ty) + 0.0, float("nan"))
        tl.store(centroids + number * 4 + which, mean, mask=number < all_groups)


@triton.jit(do_not_specialize=["count", "group", "groups", "all_codes"])
def _look_up(centroids, codes, values, count, group, groups, all_codes, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    code = tl.load(codes + i, mask=i < all_codes, other=0)
    number = i // count * groups + i % count // group
    tl.store(
        values + i,
        tl.load(centroids + number * 4 + code, mask=i < all_codes, other=0),
        mask=i < all_codes,
    )


def to_centroids(values: Tensor, group: int) -> tuple[Tensor, Tensor]:
    size, count = values.shape
    if not values.numel() or group > MOST_LANES:
        return reference.to_centroids(values, group)
    groups, lanes = -(-count // group), triton.next_power_of_2(group)
    centroids = torch.empty(size, groups, 4, dtype=values.dtype, device=values.device)
    codes = torch.empty(size, count, dtype=torch.int32, device=values.device)
    rows = max(1, TILE // lanes)
    _find[(triton.cdiv(size * groups, rows),)](
        values, centroids, codes, count, group, groups, size * groups, rows, lanes,
        enable_fp_fusion=False,
    )  # fmt: skip
    return centroids, codes


def from_centroids(centroids: Tensor, codes: Tensor, group: int) -> Tensor:
    values = torch.empty(codes.shape, dtype=centroids.dtype, device=codes.device)
    if codes.numel():
        _look_up[(triton.cdiv(codes.numel(), BLOCK),)](
            centroids, codes, values, codes.shape[1], group, centroids.shape[1], codes.numel(),
            BLOCK,
        )  # fmt: skip
    return values
