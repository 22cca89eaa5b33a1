"""All workers' payloads decoded at once (DRAGONN, section 4.3) into their sum.

No worker's payload becomes a dense tensor of its own, so the time depends on how many elements
there are in all, not on how many workers sent them. Values are added in the order of the parts, in
float64 where the target is float64 and in float32 elsewhere; what is stored is rounded once. The
bits are the same on every rank, for every implementation and any number of threads.

Deviation: the paper writes payloads side by side and lets colliding elements be added in any order.
Ranks would then differ in the last bit.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels import implementation
from thinwire.kernels.batched_decode import reference
from thinwire.types import Sparse, accumulator

SCALES = (torch.float32, torch.float64)


def decode_sum(parts: Sequence[Sparse], out: Tensor, scale: float | Tensor = 1.0) -> Tensor:
    """out = scale · (the sum of the parts), zero where there is none; all of the flat `out`.

    Indices are unique within each part; parts may differ in size, be empty, and be in any order.
    An index that is not below the number of elements is padding, and ignored. `scale` may be a
    0-D tensor on the device.
    """
    _check_target(out, scale)
    for part in parts:
        _check_part(part, out, parts[0].values.dtype)
    plain = [_plain(part) for part in parts if part.count]
    return implementation(reference.decode_sum, out.device)(plain, out, scale)


def add_rows(indices: Tensor, values: Tensor, total: Tensor, scale: float = 1.0) -> Tensor:
    """total += scale · values at the indices, row after row; nothing else of it is touched.

    Indices are unique within a row; what is not an index of `total` is padding. Where `total` is
    all zeros already this is the faster one: there is no search for the elements of a tile.

    Returned is (0-D, int64) whether some row begins with a NaN, which is how a rank whose gradient
    was not finite marks it.
    """
    _check_target(total, scale)
    if indices.dim() != 2 or indices.shape != values.shape or indices.dtype != torch.int64:
        raise RecipeError(
            f"indices of {indices.dtype} and shape {tuple(indices.shape)} with values of shape "
            f"{tuple(values.shape)} are no rows of parts: pass int64, and two numbers for each"
        )
    if indices.device != total.device or values.device != total.device:
        raise RecipeError(
            f"parts on {indices.device} and {values.device} cannot be added on {total.device}"
        )
    if total.dtype != accumulator(total.dtype):
        raise RecipeError(f"a total of {total.dtype} would be rounded with every row: use float32")
    indices, values = (_rows_of(each) for each in (indices, values))
    return implementation(reference.add_rows, total.device)(indices, values, total, scale)


def _rows_of(lists: Tensor) -> Tensor:
    """Each side by side in memory; they may lie apart."""
    return lists if lists.stride(1) == 1 else lists.contiguous()


def _check_target(out: Tensor, scale: float | Tensor) -> None:
    if isinstance(scale, Tensor):
        if scale.dim() != 0 or scale.device != out.device or scale.dtype not in SCALES:
            raise RecipeError(
                f"scale of {scale.dtype} and shape {tuple(scale.shape)} on {scale.device}: pass "
                f"a number, or one of {SCALES} as a 0-D tensor on {out.device}"
            )
    elif not 0 < scale < math.inf:
        raise RecipeError(f"scale={scale} must be positive and finite")
    if out.dim() != 1 or not out.is_contiguous():
        raise RecipeError(
            f"parts are decoded into a flat, contiguous tensor, not one of shape "
            f"{tuple(out.shape)} with strides {out.stride()}"
        )


def _check_part(part: Sparse, out: Tensor, dtype: torch.dtype) -> None:
    if part.numel != out.numel() or part.indices.device != out.device:
        raise RecipeError(
            f"a part of {part.numel} elements on {part.indices.device} cannot be decoded into "
            f"{out.numel()} on {out.device}"
        )
    if part.values.dtype != dtype:
        raise RecipeError(
            f"all parts must have values of one dtype, not both {dtype} and {part.values.dtype}"
        )


def _plain(part: Sparse) -> Sparse:
    """One index for each value, ascending, side by side in memory."""
    part = part.elements().sorted()
    indices, values = part.indices, part.values
    if indices.is_contiguous() and values.is_contiguous() and not values.requires_grad:
        return part  # as most are: with many small parts the host's time counts
    return Sparse(indices.contiguous(), values.detach().contiguous(), part.numel)
