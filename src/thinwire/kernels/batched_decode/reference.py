"""Batched decoding in torch: what is computed, with one dense total where it is simplest.

sum   = 0 + part_0 + part_1 + …, each where it has an index, in this order
AdamW = torch.optim.AdamW's update, each multiplication and addition rounded by itself
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from thinwire.kernels.batched_decode import AdamW
from thinwire.kernels.region_reduce import region_reduce
from thinwire.types import Sparse, accumulator


def decode_sum(parts: Sequence[Sparse], out: Tensor, scale: float) -> Tensor:
    """See the package."""
    return out.copy_(_dense(parts, out, scale))


def decode_sgd(parts: Sequence[Sparse], param: Tensor, step_size: float) -> Tensor:
    """See the package."""
    if not parts:
        return param
    total = region_reduce([_in(accumulator(param.dtype), part) for part in parts], param.numel())
    before = param[total.indices].to(total.values.dtype)
    param[total.indices] = (before - total.values * step_size).to(param.dtype)
    return param


def decode_adam(
    parts: Sequence[Sparse], param: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, adam: AdamW
) -> Tensor:
    """See the package."""
    mean = _dense(parts, param, adam.scale)
    first, second = exp_avg.to(mean.dtype), exp_avg_sq.to(mean.dtype)
    first = first + (mean - first) * adam.first_weight
    second = second * adam.second_decay + (mean * adam.second_weight) * mean
    divisor = _root(second) * adam.second_correction + adam.eps
    decayed = param.to(mean.dtype) * adam.decay
    exp_avg.copy_(first)
    exp_avg_sq.copy_(second)
    return param.copy_(decayed - (first * adam.step_size) / divisor)


def _root(x: Tensor) -> Tensor:
    """Rounded to nearest, which torch's own on the CPU is not."""
    return torch.from_numpy(np.sqrt(x.numpy())) if x.device.type == "cpu" else x.sqrt()


def _dense(parts: Sequence[Sparse], like: Tensor, scale: float) -> Tensor:
    total = torch.zeros_like(like, dtype=accumulator(like.dtype))
    for part in parts:
        _in(total.dtype, part).add_to(total)
    return total.mul_(scale)


def _in(dtype: torch.dtype, part: Sparse) -> Sparse:
    return Sparse(part.indices, part.values.to(dtype), part.numel, part.ordered)
