"""Nonzero: for gradients that are sparse as they come."""

from dataclasses import dataclass

from torch import Tensor

from thinwire.kernels.lazy_sum import LazySum
from thinwire.sparsify._common import take
from thinwire.types import Sparse, Sparsifier, State, StepContext


@dataclass(frozen=True, slots=True)
class Nonzero(Sparsifier):
    """Selects what is not zero, all of it: DeepReduce, section 6.3, "without any sparsifier".

    For gradients of which much is exactly zero, as of embeddings of which a batch sees few rows.
    NaN is not zero. A residual would fill in the zeros with what the codec rounded off: use a codec
    that loses nothing, or no feedback, where the zeros are to stay.
    """

    name = "nonzero"
    joins = True

    def select(self, x: Tensor, state: State, ctx: StepContext) -> Sparse:
        """The non-zero elements of `x`."""
        return take(x, x.nonzero().view(-1))

    def select_parts(self, x: LazySum, state: State, ctx: StepContext) -> Sparse:
        """The same of any number of tensors, and all of those that are let past."""
        assert ctx.layout is not None
        dense = x.dense()
        chosen = dense != 0
        for _, start, end, past in ctx.layout.parts():
            if past:
                chosen[start:end] = True
        return take(dense, chosen.nonzero().view(-1))
