"""Adam's steps of a rank alone, made as long as if its gradients had been averaged over all ranks.

Adam moves by m/√v, and v is about g² + σ². Alone a rank has P times the noise σ² of the mean
gradient, so where noise prevails its steps are √P times too short, and where it does not they are
right. What is noise of v shows in v - m², so the steps are corrected element by element.
`reference.py` says how.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.lone_steps import reference


def lone_steps(
    parameters: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    scales: Tensor,
    rate: float,
    eps: float,
    ranks: int,
) -> None:
    """Move each parameter by what its step was too short, where `ranks` share out the gradients.

    `means` and `squares` are Adam's own after that step, and `scales` (two elements, on their
    device) what makes up for their beginning at zero. Nothing waits for the device.
    """
    if not parameters:
        return
    kinds = {tensor.dtype for tensor in (*parameters, *means, *squares)}
    rows = all(t.is_contiguous() for t in (*parameters, *means, *squares))
    plain = kinds == {torch.float32} and rows
    step = implementation(reference.lone_steps, scales.device) if plain else reference.lone_steps
    step(parameters, means, squares, scales, rate, eps, ranks)
