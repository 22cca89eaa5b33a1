"""What is still to be added to an accumulator, so that adding and selecting can be one pass."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.errors import RecipeError

GRADIENTS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
ACCUMULATORS = (torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class Addend:
    """x += grad; with a velocity: velocity = factor·velocity + grad, then x += velocity.

    Rounded after each operation, as torch's `mul_` and `add_` do: no fused multiply-add. The
    gradient may be of any floating-point dtype.

    `clear` leaves zeros where the gradient was. That is 4 bytes more for each element of float32,
    but on a CPU saves a later pass over memory that would have to be read before it is written.

    With `bad` (0-D int32, on the device), elements of the gradient that are not finite are added
    as zero and make it 1; nothing makes it 0 again.
    """

    grad: Tensor
    velocity: Tensor | None = None
    factor: float = 0.0
    clear: bool = False
    bad: Tensor | None = None

    def add_to(self, x: Tensor) -> None:
        """Add it in torch, in place."""
        step = self.grad
        if self.bad is not None:
            finite = step.isfinite()
            self.bad.bitwise_or_(finite.all().logical_not_().to(torch.int32))
            step = torch.where(finite, step, 0)
        if self.velocity is not None:
            step = self.velocity.mul_(self.factor).add_(step)
        x.add_(step)
        self.clear_gradient()

    def clear_gradient(self) -> None:
        """Leave zeros where the gradient was, if it is to be cleared."""
        if self.clear:
            self.grad.zero_()

    def sample(self, x: Tensor, where: slice) -> Tensor:
        """Some elements of the sum with `x`; all tensors stay as they are."""
        total = x[where].clone()
        velocity = None if self.velocity is None else self.velocity[where].clone()
        bad = None if self.bad is None else torch.zeros_like(self.bad)
        Addend(self.grad[where], velocity, self.factor, bad=bad).add_to(total)
        return total


def check(x: Tensor, threshold: Tensor | None = None, addend: Addend | None = None) -> None:
    """Refuse elements that the kernels cannot read, a threshold or an addend not meant for them."""
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
    if addend is not None:
        _check_summand(x, addend.grad)
        if addend.velocity is not None:
            _check_summand(x, addend.velocity)
            if addend.velocity.dtype != x.dtype:
                raise RecipeError(
                    f"velocity is {addend.velocity.dtype}, residual {x.dtype}: make them one"
                )
        bad = addend.bad
        if bad is not None and (bad.dim() or bad.dtype != torch.int32 or bad.device != x.device):
            raise RecipeError(
                f"a flag of {bad.dtype}, shape {tuple(bad.shape)}, on {bad.device} cannot be set "
                f"by a kernel: pass one int32 as a 0-D tensor on {x.device}"
            )


def _check_summand(x: Tensor, summand: Tensor) -> None:
    if summand.shape != x.shape or not summand.is_contiguous() or summand.dtype not in GRADIENTS:
        raise RecipeError(
            f"{summand.dtype} of shape {tuple(summand.shape)} and strides {summand.stride()} "
            f"cannot be added to {x.numel()} elements: pass as many, contiguous, of {GRADIENTS}"
        )
    if summand.device != x.device:
        raise RecipeError(f"a gradient on {summand.device} does not meet {x.device}: move it")
