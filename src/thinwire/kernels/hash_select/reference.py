"""Selection by hashing in torch: compaction, then the largest index of each slot."""

import torch
from torch import Tensor

from thinwire.kernels.addend import Addend
from thinwire.kernels.compact.reference import passing
from thinwire.rng import hash_to_range


def hash_select(
    x: Tensor, threshold: Tensor, slots: int, seed: int, addend: Addend | None = None
) -> tuple[Tensor, Tensor]:
    if addend:
        addend.add_to(x)
    writers = passing(x, threshold)
    winners = torch.full((slots,), -1, dtype=torch.int64, device=x.device)
    winners.scatter_reduce_(0, hash_to_range(writers, slots, seed), writers, "amax")
    values = x.new_zeros(slots)
    taken = winners >= 0
    values[taken] = x[winners[taken]]
    return winners, values
