"""Block top-k: whole blocks by their norm."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from thinwire.kernels.kept import kept
from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_density, check_integer, target_count
from thinwire.sparsify._common import OnePass, take, take_largest
from thinwire.types import PADDING, Layout, Selection, Sparse, Sparsifier, State, StepContext


@dataclass(frozen=True, slots=True)
class BlockTopK(OnePass):
    """All elements of the density·blocks blocks of largest L2 norm; among equals the first.

    S2 Reducer, section 2.2, there with 1/32 of the blocks. The last block may be short.
    """

    name = "block"
    joins = True

    density: float = 0.01
    block: int = 256

    def __post_init__(self) -> None:
        check_density(self.density)
        check_integer("block", self.block, 1)

    def is_steady(self, device: torch.device) -> bool:
        return device.type == "cuda"

    def replays(self, state: State, step: int) -> Hashable | None:
        return ()

    def select_from(self, x: LazySum, state: State, ctx: StepContext) -> Sparse:
        """Whole blocks, element by element. Blocks of tensors that are let past come first."""
        norms = x.block_norms(self.block)
        count = target_count(norms.numel(), self.density, ctx.density)
        if ctx.layout is not None and (past := _blocks_past(ctx.layout, self.block, x.device)):
            norms.index_fill_(0, past.blocks, torch.inf)
            count = min(count + past.number, norms.numel())
        return self._elements(x.dense(), take_largest(norms, count).indices, ctx)

    def select_parts(self, x: LazySum, state: State, ctx: StepContext) -> Selection:
        """One choice over all tensors, if none is to have its own."""
        assert ctx.layout is not None
        if ctx.layout.each:
            return Sparsifier.select_parts(self, x, state, ctx)
        return self.select_from(x, state, ctx)

    def _elements(self, x: Tensor, blocks: Tensor, ctx: StepContext) -> Sparse:
        within = torch.arange(self.block, device=x.device)
        indices = (blocks[:, None] * self.block + within).flatten()
        if x.numel() % self.block == 0:
            return take(x, indices)
        if not ctx.steady:
            return take(x, indices[indices < x.numel()])
        beyond = indices >= x.numel()
        values = x[indices.clamp(max=x.numel() - 1)].masked_fill_(beyond, 0)
        return Sparse(indices.masked_fill_(beyond, PADDING), values, x.numel(), padded=True)


class PastBlocks(NamedTuple):
    """The blocks that must be chosen."""

    blocks: Tensor
    number: int


@kept(256)
def _blocks_past(layout: Layout, block: int, device: torch.device) -> PastBlocks | None:
    """The blocks that tensors lie in which are let past. Kept: a copy to a GPU makes one wait."""
    numbers = {
        number
        for _, start, end, past in layout.parts()
        if past
        for number in range(start // block, (end - 1) // block + 1)
    }
    if not numbers:
        return None
    return PastBlocks(torch.tensor(sorted(numbers), device=device), len(numbers))
