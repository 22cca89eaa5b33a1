"""Steps as long as those of all ranks together, in torch."""

from collections.abc import Sequence

from torch import Tensor


def lone_steps(
    parameters: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    scales: Tensor,
    rate: float,
    eps: float,
    ranks: int,
) -> None:
    """v as of the mean gradient is m² + (v - m²)/P, and at least m²."""
    for p, m, v in zip(parameters, means, squares, strict=True):
        mean, square = m * scales[0], v * scales[1]
        signal = mean * mean
        joint = (signal * (1 - 1 / ranks) + square * (1 / ranks)).maximum(signal)
        longer = mean / (joint.sqrt() + eps) - mean / (square.sqrt() + eps)
        p.sub_(longer * rate)
