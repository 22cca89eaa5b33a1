"""Settling in torch."""

import torch
from torch import Tensor

from thinwire.types import Sparse


def settle(delivered: Sparse, residual: Tensor, velocity: Tensor | None) -> None:
    delivered = delivered.trimmed()
    finite = torch.where(delivered.values.isfinite(), delivered.values, 0)
    residual.index_add_(0, delivered.indices, finite, alpha=-1)
    if velocity is not None:
        velocity.index_fill_(0, delivered.indices, 0)
