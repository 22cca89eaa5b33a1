"""Block top-k: whole blocks by their norm."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_density, target_count
from thinwire.sparsify._common import check_integer, take, take_largest
from thinwire.types import Sparse, State, StepContext, TensorSpec


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
        return self.select_from(LazySum(x), state, ctx)

    def select_from(self, x: LazySum, state: State, ctx: StepContext) -> Sparse:
        """The same, before `x` is added up."""
        norms = x.block_norms(self.block)
        count = target_count(norms.numel(), self.density, ctx.density)
        chosen = take_largest(norms, count).indices
        within = torch.arange(self.block, device=x.device)
        indices = (chosen[:, None] * self.block + within).flatten()
        if x.numel % self.block:
            indices = indices[indices < x.numel]
        return take(x.dense(), indices)
