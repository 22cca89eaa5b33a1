"""Block top-k: whole blocks by their norm."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.density import check_density, target_count
from thinwire.sparsify._common import (
    check_integer,
    largest,
    on_cpu,
    take,
)
from thinwire.types import Sparse, State, StepContext, TensorSpec

_SQUARES_UNDERFLOW_BELOW = 1e-15  # well above the root of float32's smallest normal number


@dataclass(frozen=True, slots=True)
class BlockTopK:
    """All elements of the density·blocks blocks of largest L2 norm; among equals the first.

    S2 Reducer, section 2.2, there with 1/32 of the blocks. The last block may be short.
    """

    density: float = 0.01
    block: int = 256

    def __post_init__(self) -> None:
        check_density(self.density)
        check_integer("block", self.block, 1)

    def init(self, spec: TensorSpec) -> State:
        """Nothing to remember."""
        return {}

    def select(self, x: Tensor, state: State, ctx: StepContext) -> Sparse:
        """Whole blocks, element by element."""
        numel = x.numel()
        blocks = -(-numel // self.block)
        chosen = largest(_norms(x, self.block), target_count(blocks, self.density, ctx.density))
        within = torch.arange(self.block, device=x.device)
        indices = (chosen[:, None] * self.block + within).flatten()
        if numel % self.block:
            indices = indices[indices < numel]
        return take(x, indices)


def _norms(x: Tensor, block: int) -> Tensor:
    """The L2 norm of each block.

    Squares of float32 may leave its range. On a device float64 costs nothing here; on the CPU it
    is thirty times slower, and used only when all norms are tiny or one overflows. (Next to a
    norm of ordinary size it does not matter how tiny ones compare.)
    """
    if not on_cpu(x) or x.dtype == torch.float64:
        return _norms_in(x, block, torch.float64)
    norms = _norms_in(x, block, torch.float32)
    greatest = float(norms.max()) if norms.numel() else 0.0
    if _SQUARES_UNDERFLOW_BELOW < greatest < float("inf"):
        return norms
    return _norms_in(x, block, torch.float64)


def _norms_in(x: Tensor, block: int, dtype: torch.dtype) -> Tensor:
    whole = x.numel() // block * block
    norms: Tensor = torch.linalg.vector_norm(x[:whole].view(-1, block), dim=1, dtype=dtype)
    if whole == x.numel():
        return norms
    last = torch.linalg.vector_norm(x[whole:], dtype=dtype)
    return torch.cat((norms, last[None]))
