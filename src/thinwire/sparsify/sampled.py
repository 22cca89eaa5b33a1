"""Deep Gradient Compression's selection: a threshold estimated from a sample."""

import math
from dataclasses import dataclass

import torch

from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_density, check_integer, check_range, target_count
from thinwire.sparsify._common import (
    kth_largest,
    rank_in,
    reaching,
    strided_sample,
    take_all,
    take_largest,
    take_largest_of,
)
from thinwire.sparsify.topk import ExactOnGpu
from thinwire.types import Sparse, State, StepContext


@dataclass(frozen=True, slots=True)
class SampledThreshold(ExactOnGpu):
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

    On a GPU every step takes exactly k: see `ExactOnGpu`.
    """

    name = "sampled"

    density: float = 0.01
    sample: float = 0.01  # share of the elements looked at; DGC: 0.1 % to 1 %
    low: float = 0.8
    high: float = 1.3
    max_adjustments: int = 10

    def __post_init__(self) -> None:
        check_density(self.density)
        check_density(self.sample, "sample")
        check_range("low", self.low, 0, 1)
        check_range("high", self.high, 1)
        check_integer("max_adjustments", self.max_adjustments, 0)

    def estimate(self, x: LazySum, state: State, ctx: StepContext) -> Sparse:
        """Between low·k and high·k elements, none of them smaller than one left out."""
        k = target_count(x.numel, self.density, ctx.density)
        if k == x.numel:
            return take_all(x.dense())
        sample = strided_sample(x, k, self.sample, ctx)
        rank = rank_in(sample, k, x)
        threshold = kth_largest(sample, rank)
        for _ in range(self.max_adjustments + 1):
            passing = reaching(x, threshold, k)
            if passing.count > self.high * k:
                return take_largest_of(passing, k)
            if passing.count >= self.low * k:
                return passing
            rank = max(rank + 1, math.ceil(rank * k / max(passing.count, 1)))
            if rank > sample.numel():
                break
            lower = kth_largest(sample, rank)
            if torch.equal(lower, threshold):  # the same elements would pass: many zeros
                break
            threshold = lower
        return take_largest(x.dense(), k)
