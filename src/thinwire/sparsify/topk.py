"""Exact local top-k."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.kernels.exact_topk import largest_of
from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_density, target_count
from thinwire.sparsify._common import OnePass, take_largest
from thinwire.types import Sparse, State, StepContext, TensorSpec

_ROOM = 4  # times k for the candidates; more than that, or fewer than k, take more passes
_WANTED = 1.5  # times k candidates: seldom too few, seldom too many
_FIRST_GAP, _LEAST_GAP, _MOST_GAP = 0.1, 1e-6, 0.5


@dataclass(frozen=True, slots=True)
class TopK(OnePass):
    """The k = density·n elements of largest magnitude: exactly k, among equals the lower index.

    gTop-k, section II: each worker's local selection. Its mask `|x| > thr`, with thr the k-th
    magnitude, keeps k - 1 elements or fewer (deviation: ties at the threshold fill up to k).

    The k-th magnitude of the last step, lowered a little, says where to look first: so a step is
    one pass, and an exact selection among a few candidates. It changes the time, not the result.
    How little depends on how long values wait in a residual, which piles them up just below the
    threshold: the gap follows the number of candidates, on the device.
    """

    name = "topk"

    density: float = 0.01

    def __post_init__(self) -> None:
        check_density(self.density)

    def init(self, spec: TensorSpec) -> State:
        """A threshold that nothing reaches: the first step looks for its own."""

        def number(value: float) -> Tensor:
            return torch.full((), value, dtype=spec.accumulator, device=spec.device)

        return {"threshold": number(math.inf), "gap": number(_FIRST_GAP)}

    def select_from(self, x: LazySum, state: State, ctx: StepContext) -> Sparse:
        """Exactly k elements."""
        k = target_count(x.numel, self.density, ctx.density)
        if not 0 < k < x.numel:
            return take_largest(x.dense(), k)
        candidates = x.compact(state["threshold"] * (1 - state["gap"]), min(x.numel, _ROOM * k))
        indices, values, threshold = largest_of(candidates, x.dense(), k)
        off = (_WANTED * k / candidates.count.clamp(min=1)).clamp_(0.25, 4)
        state["threshold"] = threshold
        state["gap"] = (state["gap"] * off).clamp_(_LEAST_GAP, _MOST_GAP)
        return Sparse(indices, values, x.numel, ordered=True)
