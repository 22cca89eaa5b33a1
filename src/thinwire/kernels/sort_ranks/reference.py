"""Sorting with ranks in torch."""

import torch
from torch import Tensor


def sort_ranks(values: Tensor) -> tuple[Tensor, Tensor]:
    ascending, order = values.sort(stable=True)
    places = torch.arange(values.numel(), dtype=torch.int32, device=values.device)
    return ascending, torch.empty_like(places).scatter_(0, order, places)
