"""Selection by hashing in torch: compaction, then the largest index of each slot."""

import torch
from torch import Tensor

from thinwire.kernels.compact.reference import passing
from thinwire.rng import hash_to_range


def hash_select(x: Tensor, threshold: Tensor, slots: int, seed: int) -> tuple[Tensor, Tensor]:
    """See the package."""
    writers = passing(x, threshold)
    winners = torch.full((slots,), -1, dtype=torch.int64, device=x.device)
    winners.scatter_reduce_(0, hash_to_range(writers, slots, seed), writers, "amax")
    values = x.new_zeros(slots)
    taken = winners >= 0
    values[taken] = x[winners[taken]]
    return winners, values


def accumulate_hash(
    residual: Tensor, grad: Tensor, threshold: Tensor, slots: int, seed: int, clear: bool
) -> tuple[Tensor, Tensor]:
    """See the package."""
    residual.add_(grad)
    if clear:
        grad.zero_()
    return hash_select(residual, threshold, slots, seed)
