"""All workers' payloads decoded at once (DRAGONN, section 4.3), into a sum or straight into a step.

No worker's payload becomes a dense tensor of its own, so the time depends on how many elements
there are in all, not on how many workers sent them. Values are added in the order of the parts, in
float64 where the target is float64 and in float32 elsewhere; what is stored is rounded once. The
bits are the same on every rank, for every implementation and any number of threads.

Deviation: the paper writes payloads side by side and lets colliding elements be added in any order.
Ranks would then differ in the last bit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels import Implementation, implementation
from thinwire.types import Sparse

BUILT: tuple[Implementation, ...] = ("reference", "numba", "triton")


def decode_sum(parts: Sequence[Sparse], out: Tensor, scale: float = 1.0) -> Tensor:
    """out = scale · (the sum of the parts), zero where there is none; all of the flat `out`.

    Indices are unique within each part; parts may differ in size, be empty, and be in any order.
    """
    _check_scale(scale)
    parts = _ready(parts, out)
    return _implementation(out, BUILT).decode_sum(parts, out, scale)


def decode_sgd(parts: Sequence[Sparse], param: Tensor, lr: float, scale: float) -> Tensor:
    """param -= lr·scale · (the sum of the parts). Reads and writes only what the parts name."""
    _check_scale(scale)
    if not 0 <= lr < math.inf:
        raise RecipeError(f"lr={lr} must be at least 0 and finite")
    parts = _ready(parts, param)
    return _implementation(param, ("reference", "triton")).decode_sgd(parts, param, lr * scale)


@dataclass(frozen=True, slots=True)
class AdamW:
    """The numbers of one step of `torch.optim.AdamW`, as its update uses them."""

    scale: float
    decay: float
    first_weight: float
    second_decay: float
    second_weight: float
    step_size: float
    second_correction: float
    eps: float


def decode_adam(
    parts: Sequence[Sparse],
    param: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    *,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    scale: float,
) -> Tensor:
    """Step number `step` (from 1 on) of AdamW on scale · (the sum of the parts).

    One pass over the three tensors; there is no dense gradient. Deviation from torch.optim.AdamW:
    no multiplication is fused with an addition, and the second moment's root is multiplied where
    torch divides, so that every device gives the same bits.
    """
    _check_scale(scale)
    if step < 1:
        raise RecipeError(f"step={step} must be at least 1: the first step is 1")
    for moment in (exp_avg, exp_avg_sq):
        _check_target(moment, param.numel())
    parts = _ready(parts, param)
    adam = AdamW(
        scale=scale,
        decay=1 - lr * weight_decay,
        first_weight=1 - betas[0],
        second_decay=betas[1],
        second_weight=1 - betas[1],
        step_size=lr / (1 - betas[0] ** step),
        second_correction=1 / math.sqrt(1 - betas[1] ** step),
        eps=eps,
    )
    return _implementation(param, BUILT).decode_adam(parts, param, exp_avg, exp_avg_sq, adam)


def _ready(parts: Sequence[Sparse], target: Tensor) -> list[Sparse]:
    """The parts that have elements: one index each, ascending, side by side in memory."""
    numel, device = target.numel(), target.device
    _check_target(target, numel)
    for part in parts:
        if part.numel != numel or part.indices.device != device:
            raise RecipeError(
                f"a part of {part.numel} elements on {part.indices.device} cannot be decoded into "
                f"{numel} on {device}"
            )
        if part.values.dtype != parts[0].values.dtype:
            raise RecipeError(
                f"all parts must have values of one dtype, not both {parts[0].values.dtype} "
                f"and {part.values.dtype}"
            )
    return [_plain(part) for part in parts if part.count]


def _plain(part: Sparse) -> Sparse:
    part = part.elements().sorted()
    indices, values = part.indices, part.values
    if indices.is_contiguous() and values.is_contiguous() and not values.requires_grad:
        return part  # as most are: with many small parts the host's time counts
    return Sparse(indices.contiguous(), values.detach().contiguous(), part.numel)


def _check_target(target: Tensor, numel: int) -> None:
    if target.dim() != 1 or not target.is_contiguous() or target.numel() != numel:
        raise RecipeError(
            f"targets must be flat, contiguous and of one size, found {tuple(target.shape)} "
            f"with strides {target.stride()} where {numel} elements belong"
        )


def _check_scale(scale: float) -> None:
    if not 0 < scale < math.inf:
        raise RecipeError(f"scale={scale} must be positive and finite")


class _Decoder(Protocol):
    """What an implementation's module has; the CPU steps with SGD in torch."""

    def decode_sum(self, parts: Sequence[Sparse], out: Tensor, scale: float) -> Tensor: ...

    def decode_sgd(self, parts: Sequence[Sparse], param: Tensor, step_size: float) -> Tensor: ...

    def decode_adam(
        self,
        parts: Sequence[Sparse],
        param: Tensor,
        exp_avg: Tensor,
        exp_avg_sq: Tensor,
        adam: AdamW,
    ) -> Tensor: ...


def _implementation(target: Tensor, built: tuple[Implementation, ...]) -> _Decoder:
    return cast(_Decoder, implementation(__name__, target.device, built))
