"""Stochastic rounding in torch."""

import torch
from torch import Tensor

from thinwire.rng import hash_to_unit


def quantise(heights: Tensor, seed: int) -> Tensor:
    floor = heights.floor()
    positions = torch.arange(heights.numel(), device=heights.device)
    up = hash_to_unit(positions, seed) < heights - floor
    return (floor + up).int()
