"""MSTopk: the threshold by binary search."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_density, check_integer, target_count
from thinwire.sparsify._common import chunks, reaching, take, take_all, take_largest
from thinwire.types import Sparse, Sparsifier, State, StepContext


@dataclass(frozen=True, slots=True)
class MultiStage(Sparsifier):
    """Exactly k elements, between two thresholds that a binary search closes in on.

    MSTopk (Shi et al., MLSys 2021; DRAGONN's baseline, sections 1 and 6): `stages` rounds halve
    the interval from the mean to the maximum of |x|, and keep the lowest threshold that fewer
    than k elements reach and the highest that more than k reach. All elements beyond the upper
    one are taken, and a run of those in the band between fills up to k; where the run starts is
    drawn from the step's stream. Approximate: within the band, position decides.

    Deviations:
    - Rounds after one that let too many through look only at what passed: only those can matter.
    - Where no threshold in the interval lets more than k through (a density above the share
      beyond the mean, one huge outlier, all equal) the paper's band is all the rest; the exact k
      largest are taken instead.
    """

    name = "multistage"

    density: float = 0.01
    stages: int = 30

    def __post_init__(self) -> None:
        check_density(self.density)
        check_integer("stages", self.stages, 1)

    def select(self, x: Tensor, state: State, ctx: StepContext) -> Sparse:
        """Exactly k elements."""
        k = target_count(x.numel(), self.density, ctx.density)
        if k == x.numel():
            return take_all(x)
        low, high = _mean_and_maximum(x)
        candidates: Tensor | None = None  # None: all of x; else what lies beyond `low`
        pool = x
        sure = torch.empty(0, dtype=torch.int64, device=x.device)  # positions in pool beyond `high`
        for _ in range(self.stages):
            if not torch.finfo(x.dtype).eps * high < high - low < math.inf:
                break  # no number of x's precision lies between
            middle = low + (high - low) / 2
            kept = reaching(LazySum(pool), middle, k).indices
            if kept.numel() > k:
                low = middle
                candidates = kept if candidates is None else candidates[kept]
                # What lies beyond `high` lies beyond `low`: it keeps its place among the kept.
                sure = torch.searchsorted(kept, sure)
                pool = x[candidates]
            else:
                high = middle
                sure = kept
                if kept.numel() == k:
                    break
        if sure.numel() == k:
            return take(x, sure if candidates is None else candidates[sure])
        if candidates is None:
            return take_largest(x, k)
        filled = torch.cat((sure, self._fill(pool.numel(), sure, k, ctx))).sort().values
        return take(x, candidates[filled])

    def _fill(self, size: int, sure: Tensor, k: int, ctx: StepContext) -> Tensor:
        """A run of the positions in [0, size) that are not `sure`, as many as k still needs."""
        in_band = torch.ones(size, dtype=torch.bool, device=sure.device)
        in_band[sure] = False
        band = in_band.nonzero().flatten()
        room = k - sure.numel()
        start = ctx.stream("multistage", shared=False) % (band.numel() - room + 1)
        return band[start : start + room]


def _mean_and_maximum(x: Tensor) -> tuple[float, float]:
    """Of |x|; the mean may come out infinite for huge values, which the caller must bear."""
    if x.device.type != "cpu":
        size = x.abs()
        mean, greatest = torch.stack((size.mean(), size.max())).tolist()
        return mean, greatest
    total = maximum = 0.0
    with np.errstate(over="ignore"):
        for _, magnitudes in chunks(x):
            total += float(magnitudes.sum())
            maximum = max(maximum, float(magnitudes.max()))
    return total / x.numel(), maximum
