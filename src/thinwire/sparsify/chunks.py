"""Chunk top-k: the largest of every 4096 elements."""

from dataclasses import dataclass
from functools import lru_cache

import torch

from thinwire.kernels.chunk_topk import MOST_CHUNK, Chunks
from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_density, check_integer
from thinwire.sparsify._common import OnePass, take_all
from thinwire.types import Layout, Sparse, State, StepContext


@dataclass(frozen=True, slots=True)
class ChunkTopK(OnePass):
    """The `k` elements of largest magnitude of each chunk; among equals the lower index.

    DeMo (Peng et al., 2024) takes 32, SparseLoCo (2508.15706) 64 of each 64 × 64 elements of a
    matrix. Every part of a tensor has its say, whatever its scale; a chunk is chosen from where it
    lies, with no threshold to look for or to remember; and where in its chunk an element is takes
    12 bits (`chunk12`).

    Where we leave them: a chunk is 4096 elements in a row, not a tile of a matrix, and there is
    no cosine transform (SparseLoCo has none either). A short chunk gives its share, at least one.
    Chunks begin anew with each tensor where a unit has tensors that are selected from apart, or
    let past.
    """

    name = "chunks"
    joins = True

    k: int = 64
    chunk: int = 4096

    def __post_init__(self) -> None:
        check_integer("chunk", self.chunk, 1, MOST_CHUNK)
        check_integer("k", self.k, 1, self.chunk)

    @classmethod
    def of_density(cls, density: float, chunk: int = 4096) -> "ChunkTopK":
        """As many of each chunk as come closest to the density: one at least."""
        check_density(density)
        return cls(max(1, round(density * chunk)), chunk)

    @property
    def density(self) -> float:
        return self.k / self.chunk

    def is_steady(self, device: torch.device) -> bool:
        return True

    def select_from(self, x: LazySum, state: State, ctx: StepContext) -> Sparse:
        """A number of elements that follows from the sizes alone."""
        if x.numel == 0:
            return take_all(x.dense())
        density = self.density if ctx.density is None else ctx.density
        check_density(density)
        indices, values = x.chunk_topk(_chunks(ctx.layout, x.numel, self.chunk, density))
        return Sparse(indices, values, x.numel)

    select_parts = select_from


@lru_cache(maxsize=1024)
def _chunks(layout: Layout | None, numel: int, length: int, density: float) -> Chunks:
    """One range, or one for each tensor of a unit whose tensors are not all alike."""
    if layout is None or layout.is_plain:
        return Chunks(((0, numel, False),), length, density)
    ranges = [(start, end, past) for _, start, end, past in layout.parts() if start < end]
    return Chunks(tuple(ranges), length, density)
