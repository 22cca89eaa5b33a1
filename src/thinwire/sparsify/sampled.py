"""Deep Gradient Compression's selection: a threshold estimated from a sample."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.density import check_density, target_count
from thinwire.errors import RecipeError
from thinwire.sparsify._common import (
    above,
    check_integer,
    check_range,
    kth_largest,
    largest,
    odd_stride,
    take,
)
from thinwire.types import Sparse, State, StepContext, TensorSpec

_LEAST_SAMPLE = 512  # elements; a smaller sample says nothing of a tail


@dataclass(frozen=True, slots=True)
class Sampled:
    """All elements whose magnitude reaches a threshold that a strided sample suggests.

    DGC (Lin et al., 2017) as DRAGONN describes it in section 2.3. The count lies between
    `low`·k and `high`·k:
    - too many: the exact k largest of those that passed (DGC's hierarchical selection), so that
      what is dropped is always the smallest, never the last by index;
    - too few: the threshold is lowered, at most `max_adjustments` times, and then the exact k
      largest of all are taken.
    Deviation: DGC lowers the threshold by a fixed factor, which is too little for heavy tails
    and too much for light ones. Here the sample says how far, at the rank that makes up for what
    was missing.
    """

    density: float = 0.01
    sample: float = 0.01  # share of the elements looked at; DGC: 0.1 % to 1 %
    low: float = 0.8
    high: float = 1.3
    max_adjustments: int = 10

    def __post_init__(self) -> None:
        check_density(self.density)
        if not 0 < self.sample <= 1:
            raise RecipeError(f"sample={self.sample} must be in (0, 1]")
        check_range("low", self.low, 0, 1)
        check_range("high", self.high, 1)
        check_integer("max_adjustments", self.max_adjustments, 0)

    def init(self, spec: TensorSpec) -> State:
        """Nothing to remember."""
        return {}

    def select(self, x: Tensor, state: State, ctx: StepContext) -> Sparse:
        """Between low·k and high·k elements, none of them smaller than one left out."""
        numel = x.numel()
        k = target_count(numel, self.density, ctx.density)
        if k == numel:
            return take(x, torch.arange(numel, device=x.device))
        sample = self._sample(x, k, ctx)
        rank = max(1, math.ceil(k * sample.numel() / numel))
        threshold = kth_largest(sample, rank)
        for _ in range(self.max_adjustments + 1):
            candidates = above(x, threshold)
            count = candidates.numel()
            if count > self.high * k:
                return take(x, candidates[largest(x[candidates], k)])
            if count >= self.low * k:
                return take(x, candidates)
            rank = max(rank + 1, math.ceil(rank * k / max(count, 1)))
            if rank > sample.numel():
                break
            lower = kth_largest(sample, rank)
            if torch.equal(lower, threshold):  # the same elements would pass: many zeros
                break
            threshold = lower
        return take(x, largest(x, k))

    def _sample(self, x: Tensor, k: int, ctx: StepContext) -> Tensor:
        """Every stride-th element, from a start of this step's own: no element is never seen."""
        numel = x.numel()
        enough_for_the_tail = 2 * numel // k  # two elements beyond the threshold, on average
        wanted = max(_LEAST_SAMPLE, enough_for_the_tail, math.ceil(self.sample * numel))
        stride = odd_stride(numel, wanted)
        return x[ctx.stream("sampled", shared=False) % stride :: stride]
