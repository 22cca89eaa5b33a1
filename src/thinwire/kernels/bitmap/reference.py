"""Vectors of bits in torch, by way of one byte a bit."""

import torch
from torch import Tensor


def set_bits(positions: Tensor, size: int) -> Tensor:
    bits = positions.new_zeros(((size + 63) // 64 * 8, 8), dtype=torch.uint8)
    bits.view(-1).index_fill_(0, positions, 1)
    shifts = torch.arange(8, dtype=torch.uint8, device=positions.device)
    return (bits << shifts).sum(1, dtype=torch.uint8).view(torch.int64)


def _spread(words: Tensor) -> Tensor:
    """One byte a bit."""
    shifts = torch.arange(8, dtype=torch.uint8, device=words.device)
    return ((words.view(torch.uint8)[:, None] >> shifts) & 1).view(-1)


def count_bits(words: Tensor) -> int:
    return int(_spread(words).sum(dtype=torch.int64))


def positions(words: Tensor, count: int) -> tuple[Tensor, Tensor]:
    everything = _spread(words).nonzero().view(-1)
    listed = everything if everything.numel() == count else everything.new_zeros(count)
    return listed, torch.tensor(everything.numel(), device=words.device)
