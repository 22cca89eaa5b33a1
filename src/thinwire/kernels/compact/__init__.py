"""Which elements reach a threshold: compaction, alone and fused with the accumulation before it.

`reference.py` says what is computed; all implementations give the same bits. Each is one pass over
memory: 4, 12 and 20 bytes an element of float32 for the three functions here.

Those that accumulate can `clear` the gradient as they go. That makes 4 bytes more, but on a CPU
saves a later pass over memory that would have to be read before it can be written.
"""

import torch
from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels import implementation
from thinwire.kernels.compact import reference
from thinwire.kernels.compact.found import Found

__all__ = ["Found", "accumulate", "accumulate_momentum", "compact"]

GRADIENTS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
ACCUMULATORS = (torch.float32, torch.float64)


def compact(x: Tensor, threshold: Tensor, capacity: int) -> Found:
    """The non-zero elements with |x| ≥ `threshold`, up to `capacity` of them.

    `threshold` is 0-D, on x's device, and compared in x's precision. Zero never passes: it carries
    nothing, and a threshold of zero would let all of them through. Nor does NaN.
    """
    check(x, threshold)
    _check_capacity(capacity)
    return implementation(reference.compact, x.device)(x, threshold.to(x.dtype), capacity)


def accumulate(
    residual: Tensor, grad: Tensor, threshold: Tensor, capacity: int, clear: bool = False
) -> Found:
    """residual += grad, in place; then `compact(residual, …)`. The gradient may be of any dtype."""
    check(residual, threshold)
    check_gradient(residual, grad)
    _check_capacity(capacity)
    fused = implementation(reference.accumulate, residual.device)
    return fused(residual, grad, threshold.to(residual.dtype), capacity, clear)


def accumulate_momentum(
    velocity: Tensor,
    residual: Tensor,
    grad: Tensor,
    factor: float,
    threshold: Tensor,
    capacity: int,
    clear: bool = False,
) -> Found:
    """velocity = factor·velocity + grad; residual += velocity; then `compact(residual, …)`.

    Rounded after each operation, as torch's `mul_` and `add_` do: no fused multiply-add.
    """
    check(residual, threshold)
    check_gradient(residual, grad)
    check_gradient(residual, velocity)
    _check_capacity(capacity)
    if velocity.dtype != residual.dtype:
        raise RecipeError(f"velocity is {velocity.dtype}, residual {residual.dtype}: make them one")
    fused = implementation(reference.accumulate_momentum, residual.device)
    limit = threshold.to(residual.dtype)
    return fused(velocity, residual, grad, factor, limit, capacity, clear)


def check(x: Tensor, threshold: Tensor | None = None) -> None:
    """Refuse elements that the kernels cannot read, and a threshold that is not one for them."""
    if x.dim() != 1 or not x.is_contiguous() or x.dtype not in ACCUMULATORS:
        raise RecipeError(
            f"elements of shape {tuple(x.shape)}, strides {x.stride()} and {x.dtype} cannot be "
            "selected from: pass them flat, contiguous, as float32 or float64"
        )
    if threshold is not None and (threshold.dim() != 0 or threshold.device != x.device):
        raise RecipeError(
            f"a threshold of shape {tuple(threshold.shape)} on {threshold.device} does not fit "
            f"elements on {x.device}: pass one number as a 0-D tensor there"
        )


def check_gradient(residual: Tensor, grad: Tensor) -> None:
    """Refuse what cannot be added to `residual`, element by element."""
    if grad.shape != residual.shape or not grad.is_contiguous() or grad.dtype not in GRADIENTS:
        raise RecipeError(
            f"{grad.dtype} of shape {tuple(grad.shape)} and strides {grad.stride()} cannot be "
            f"added to {residual.numel()} elements: pass as many, contiguous, of {GRADIENTS}"
        )
    if grad.device != residual.device:
        raise RecipeError(f"a gradient on {grad.device} does not meet {residual.device}: move it")


def _check_capacity(capacity: int) -> None:
    if capacity < 0:
        raise RecipeError(f"capacity={capacity} must not be negative")
