"""Selection by hashing in torch: compaction, then the largest index of each slot."""

import torch
from torch import Tensor

from thinwire.kernels.addend import Addend
from thinwire.kernels.compact.found import Found
from thinwire.kernels.compact.reference import passing
from thinwire.rng import Seed, hash_to_range
from thinwire.types import PADDING


def hash_select(
    x: Tensor, threshold: Tensor, slots: int, seed: Seed, addend: Addend | None = None
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


def hash_slots(
    x: Tensor, threshold: Tensor, slots: int, seed: Seed, addend: Addend | None = None
) -> tuple[Tensor, Tensor]:
    winners, values = hash_select(x, threshold, slots, seed, addend)
    return winners.masked_fill_(winners < 0, PADDING), values


def hash_list(
    x: Tensor, threshold: Tensor, slots: int, seed: Seed, addend: Addend | None = None
) -> Found:
    return listed(*hash_select(x, threshold, slots, seed, addend))


def listed(winners: Tensor, values: Tensor) -> Found:
    """The winners of the slots in order."""
    indices, order = winners.masked_fill(winners < 0, PADDING).sort()
    return Found(indices, values[order], (winners >= 0).sum())
