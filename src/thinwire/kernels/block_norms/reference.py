"""Norms of blocks in torch."""

import torch
from torch import Tensor

from thinwire.kernels.addend import Addend


def norms_in(x: Tensor, block: int, dtype: torch.dtype) -> Tensor:
    """The norms, summed up and given in `dtype`."""
    whole = x.numel() // block * block
    norms: Tensor = torch.linalg.vector_norm(x[:whole].view(-1, block), dim=1, dtype=dtype)
    if whole == x.numel():
        return norms
    last = torch.linalg.vector_norm(x[whole:], dtype=dtype)
    return torch.cat((norms, last[None]))


def block_norms(x: Tensor, block: int, addend: Addend | None = None) -> Tensor:
    if addend:
        addend.add_to(x)
    return norms_in(x, block, torch.float64 if x.is_cuda else x.dtype).to(x.dtype)
