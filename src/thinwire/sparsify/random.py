"""Random-k."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.rng import distinct
from thinwire.settings import check_density, target_count
from thinwire.sparsify._common import take
from thinwire.types import Sparse, Sparsifier, State, StepContext


@dataclass(frozen=True, slots=True)
class RandomK(Sparsifier):
    """k elements drawn uniformly, without replacement, anew in each step.

    The random sampling of Stich et al. (2018), a baseline of DRAGONN. `shared` draws the same
    indices on every rank: the selections then add element by element, and need no indices on
    the wire. `unbiased` scales the values by n/k, so that the selection's expectation is x; with
    residual feedback that would send the same gradient more than once, so it is off by default.
    """

    name = "random"
    joins = True

    density: float = 0.01
    shared: bool = True
    unbiased: bool = False

    @property
    def scales(self) -> bool:
        return self.unbiased

    def __post_init__(self) -> None:
        check_density(self.density)

    def select(self, x: Tensor, state: State, ctx: StepContext) -> Sparse:
        """Exactly k elements."""
        numel = x.numel()
        k = target_count(numel, self.density, ctx.density)
        if k == numel:
            return take(x, torch.arange(numel, device=x.device))
        drawn = distinct(numel, k, ctx.stream("randomk", shared=self.shared), x.device)
        chosen = take(x, drawn.sort().values)
        if not self.unbiased:
            return chosen
        return Sparse(chosen.indices, chosen.values * (numel / k), numel, ordered=True)
