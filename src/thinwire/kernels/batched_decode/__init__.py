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
from thinwire.types import Sparse


def decode_sum(parts: Sequence[Sparse], out: Tensor, scale: float = 1.0) -> Tensor:
    """out = scale · (the sum of the parts), zero where there is none; all of the flat `out`.

    Indices are unique within each part; parts may differ in size, be empty, and be in any order.
    """
    if not 0 < scale < math.inf:
        raise RecipeError(f"scale={scale} must be positive and finite")
    if out.dim() != 1 or not out.is_contiguous():
        raise RecipeError(
            f"parts are decoded into a flat, contiguous tensor, not one of shape "
            f"{tuple(out.shape)} with strides {out.stride()}"
        )
    for part in parts:
        _check_part(part, out, parts[0].values.dtype)
    plain = [_plain(part) for part in parts if part.count]
    return implementation(reference.decode_sum, out.device)(plain, out, scale)


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


def decode_sum_rows(indices: Tensor, values: Tensor, out: Tensor, scale: float = 1.0) -> Tensor:
    """As `decode_sum` of parts of one size, one in each row; the last of each may be padding."""
    parts = [
        Sparse(where, what, out.numel(), padded=True)
        for where, what in zip(indices, values, strict=True)
    ]
    return decode_sum(parts, out, scale)
