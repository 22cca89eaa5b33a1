"""Gaussiank: the threshold a normal distribution would have."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_density, check_integer, check_range, target_count
from thinwire.sparsify._common import chunks, reaching, take_all, take_largest, take_largest_of
from thinwire.types import Sparse, Sparsifier, State, StepContext


@dataclass(frozen=True, slots=True)
class GaussianK(Sparsifier):
    """All elements beyond the normal quantile of mean and standard deviation.

    Gaussiank as Ok-Topk describes it (sections 2 and 5.2): gradients are more peaked than a
    normal distribution, so its quantile is wrong by a factor that changes in training. As in
    section 5.4 the threshold is scaled until the count is right, here on both sides: within
    [`low`·k, `high`·k].

    Deviations:
    - The scale is not a fixed step but what would be right if the distribution were the normal
      one of the width just observed: quantile(k)/quantile(count). Once a threshold is known on
      either side, the next is halfway between. Rounds after one with too many look only at what
      passed it.
    - `max_adjustments` bounds the rounds; then the exact k largest are taken.
    """

    name = "gaussian"

    density: float = 0.01
    low: float = 0.75
    high: float = 1.25
    max_adjustments: int = 10

    def __post_init__(self) -> None:
        check_density(self.density)
        check_range("low", self.low, 0, 1)
        check_range("high", self.high, 1)
        check_integer("max_adjustments", self.max_adjustments, 0)

    def select(self, x: Tensor, state: State, ctx: StepContext) -> Sparse:
        """Between low·k and high·k elements, none of them smaller than one left out."""
        numel = x.numel()
        k = target_count(numel, self.density, ctx.density)
        if k == numel:
            return take_all(x)
        mean, deviation = _mean_and_deviation(x)
        threshold = abs(mean) + _quantile(k, numel) * deviation
        superset: Sparse | None = None  # the fewest known to be too many
        too_many, too_few = 0.0, math.inf  # the closest thresholds known to be too low, too high
        for adjusted in range(self.max_adjustments + 1):
            if not 0 < threshold < math.inf:
                break
            kept = _reaching(x if superset is None else superset, threshold, k)
            if adjusted == 0:  # what the normal distribution predicts: Ok-Topk, figure 6
                ctx.note("predicted_count", kept.count)
            if kept.count < self.low * k:
                too_few = threshold
            elif kept.count <= self.high * k:
                return kept
            else:
                too_many, superset = threshold, kept
            if too_many > 0 and too_few < math.inf:
                threshold = (too_many + too_few) / 2
            else:
                threshold *= _quantile(k, numel) / _quantile(kept.count, numel)
        return take_largest(x, k) if superset is None else take_largest_of(superset, k)


def _reaching(x: Tensor | Sparse, threshold: float, k: int) -> Sparse:
    """What reaches a threshold, of all elements or of those that reached a lower one."""
    if isinstance(x, Tensor):
        return reaching(LazySum(x), threshold, k)
    kept = reaching(LazySum(x.values), threshold, k).indices
    return Sparse(x.indices[kept], x.values[kept], x.numel, ordered=True)


def _quantile(count: int, numel: int) -> float:
    """z such that `count` of `numel` standard normal numbers lie beyond ±z, kept within (0, ∞)."""
    share = min(max(count, 0.5), numel - 0.5) / numel
    return NormalDist().inv_cdf(1 - share / 2)


def _mean_and_deviation(x: Tensor) -> tuple[float, float]:
    """Of all of `x`; may come out infinite for huge values, which the caller must bear."""
    if x.device.type != "cpu":
        deviation, mean = torch.stack(torch.std_mean(x, correction=0)).tolist()
        return mean, deviation
    total = squares = 0.0
    with np.errstate(over="ignore", under="ignore"):
        for piece, magnitudes in chunks(x):
            total += float(piece.sum())
            squares += float(np.square(magnitudes, out=magnitudes).sum())
    mean = total / x.numel()
    return mean, math.sqrt(max(0.0, squares / x.numel() - mean * mean))
