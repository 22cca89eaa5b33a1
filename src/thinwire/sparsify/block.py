"""Block top-k: whole blocks by their norm."""

from dataclasses import dataclass

import torch

from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_density, check_integer, target_count
from thinwire.sparsify._common import OnePass, take, take_largest
from thinwire.types import Sparse, State, StepContext


@dataclass(frozen=True, slots=True)
class BlockTopK(OnePass):
    """All elements of the density·blocks blocks of largest L2 norm; among equals the first.

    S2 Reducer, section 2.2, there with 1/32 of the blocks. The last block may be short.
    """

    name = "block"

    density: float = 0.01
    block: int = 256

    def __post_init__(self) -> None:
        check_density(self.density)
        check_integer("block", self.block, 1)

    def select_from(self, x: LazySum, state: State, ctx: StepContext) -> Sparse:
        """Whole blocks, element by element."""
        norms = x.block_norms(self.block)
        count = target_count(norms.numel(), self.density, ctx.density)
        chosen = take_largest(norms, count).indices
        within = torch.arange(self.block, device=x.device)
        indices = (chosen[:, None] * self.block + within).flatten()
        if x.numel % self.block:
            indices = indices[indices < x.numel]
        return take(x.dense(), indices)
