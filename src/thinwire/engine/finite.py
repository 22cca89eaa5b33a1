"""NaN and Inf: finding them, and what a step that has one comes to."""

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor

from thinwire import foreach
from thinwire.errors import NonFiniteError
from thinwire.kernels.max_abs import max_abs

NonFinite = Literal["raise", "skip", "propagate"]


def look_at(grads: Mapping[str, Tensor]) -> tuple[list[str], float]:
    """The names of those that hold NaN or Inf, and the largest magnitude in the others."""
    tensors = list(grads.values())
    if tensors and not any(tensor.is_sparse for tensor in tensors):
        row = foreach.in_a_row(tensors)
        if row is not None and math.isfinite(largest := float(_largest(row))):
            return [], largest
    magnitudes = dict(zip(grads, largest_magnitudes(grads), strict=True))
    finite = {name: m for name, m in magnitudes.items() if math.isfinite(m)}
    return [name for name in grads if name not in finite], max(finite.values(), default=0.0)


def largest_magnitudes(grads: Mapping[str, Tensor]) -> list[float]:
    """The largest magnitude in each gradient; NaN or Inf where it holds one. Reads each once."""
    if not grads:
        return []
    return torch.stack([_largest(grad) for grad in grads.values()]).tolist()


def refuse(
    policy: NonFinite, grads: Iterable[Tensor], bad_here: list[str], bad_ranks: list[int]
) -> None:
    """What a step with NaN or Inf comes to. The state is as it was before the step."""
    if policy == "raise":
        where = f"here in {', '.join(bad_here)}" if bad_here else "not on this rank"
        raise NonFiniteError(
            f"NaN or Inf in the gradients of rank {', '.join(map(str, bad_ranks))} ({where}); "
            'nonfinite="skip" would leave the step out, nonfinite="propagate" would hand NaN '
            "to a GradScaler"
        )
    for grad in grads:
        values_of(grad).fill_(0.0 if policy == "skip" else torch.nan)


def values_of(grad: Tensor) -> Tensor:
    """What can be filled or read of a gradient, dense or COO."""
    return grad._values() if grad.is_sparse else grad


def _largest(grad: Tensor) -> Tensor:
    values = values_of(grad)
    if not values.is_floating_point():
        return values.new_zeros((), dtype=torch.float64)
    return max_abs(values)
