"""Blocks in torch, by the indices of their elements."""

import torch
from torch import Tensor

from thinwire.types import PADDING


def block_elements(blocks: Tensor, block: int, numel: int) -> Tensor:
    within = torch.arange(block, device=blocks.device)
    indices = (blocks[:, None] * block + within).flatten()
    return indices.masked_fill_(indices >= numel, PADDING)


def gather_blocks(x: Tensor, blocks: Tensor, block: int) -> Tensor:
    indices = block_elements(blocks, block, x.numel())
    none = indices == PADDING
    return x[indices.masked_fill(none, 0)].masked_fill_(none, 0)


def scatter_blocks(values: Tensor, blocks: Tensor, block: int, out: Tensor) -> Tensor:
    indices = block_elements(blocks, block, out.numel())
    there = indices != PADDING
    out[indices[there]] = values[there].to(out.dtype)
    return out
