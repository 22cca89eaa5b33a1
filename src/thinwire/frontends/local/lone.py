"""Local steps of Adam that are as long as those of all ranks together would be."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels.lone_steps import lone_steps


def lengthened(optimizers: Sequence[torch.optim.Optimizer], ranks: int) -> list[Callable[[], None]]:
    """Correct every step of these, as `kernels.lone_steps` says; how to leave off."""
    if ranks == 1:
        return []

    def correct(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            _correct(group, optimizer, ranks)

    return [optimizer.register_step_post_hook(correct).remove for optimizer in optimizers]


def is_adam(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its steps are m/√v, with v the mean of squares."""
    plain = not any(group.get("amsgrad") for group in optimizer.param_groups)
    return isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW) and plain


def refuse_others(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Where it was asked for."""
    for optimizer in optimizers:
        if not is_adam(optimizer):
            raise RecipeError(
                f"as_one=True makes steps of Adam and AdamW (without amsgrad) longer, not those of "
                f"{type(optimizer).__name__}"
            )


@torch.no_grad()
def _correct(group: dict[str, Any], optimizer: torch.optim.Optimizer, ranks: int) -> None:
    stepped = [p for p in group["params"] if p.grad is not None and "exp_avg" in optimizer.state[p]]
    states = [optimizer.state[p] for p in stepped]
    if not states:
        return
    # All parameters of a group with gradients have made as many steps, but for those that had none
    # at times: by the longest of them, which matters in the first steps only.
    scales = _scales(states[0]["step"], group["betas"], stepped[0].device)
    skipped = getattr(optimizer, "found_inf", None)  # by a GradScaler, inside of a fused step
    if skipped is not None:
        scales = scales * (skipped.to(scales.device) == 0)
    rate = float(group["lr"]) * (-1 if group["maximize"] else 1)
    means, squares = ([state[key] for state in states] for key in ("exp_avg", "exp_avg_sq"))
    lone_steps(stepped, means, squares, scales, rate, group["eps"], ranks)


def _scales(step: Tensor, betas: tuple[float, float], device: torch.device) -> Tensor:
    """1/(1 - βᵗ), without asking the device how many steps there were."""
    decays = [1 / (1 - torch.pow(beta, step.float())) for beta in betas]
    return torch.stack(decays).to(device, non_blocking=True)
