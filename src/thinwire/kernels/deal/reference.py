"""Dealing in torch, by a stable sort of the owners."""

import torch
from torch import Tensor

from thinwire.rng import Seed, hash_to_range
from thinwire.types import PADDING


def deal(
    indices: Tensor, values: Tensor, owners: int, room: int, seed: Seed
) -> tuple[Tensor, Tensor]:
    owner = torch.where(indices == PADDING, owners, hash_to_range(indices, owners, seed))
    owner, order = owner.sort(stable=True)
    everyone = torch.arange(owners + 1, device=indices.device)
    place = torch.arange(indices.numel(), device=indices.device)
    place -= torch.searchsorted(owner, everyone)[owner]
    # What has no place goes behind the last one, again and again.
    slot = torch.where((place < room) & (owner < owners), owner * room + place, owners * room)
    rows = indices.new_full((owners * room + 1,), PADDING).scatter_(0, slot, indices[order])
    dealt = values.new_zeros(owners * room + 1).scatter_(0, slot, values[order])
    return rows[:-1].view(owners, room), dealt[:-1].view(owners, room)
