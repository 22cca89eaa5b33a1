"""Exact local top-k, and what stands in for estimates of it on a GPU."""

import math
from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_density
from thinwire.sparsify._common import OnePass, take_all
from thinwire.sparsify._groups import FIRST_GAP, groups_of, largest_by_guess
from thinwire.types import Selection, Sparse, Sparsifier, State, StepContext, TensorSpec


@dataclass(frozen=True, slots=True)
class TopK(OnePass):
    """The k = density·n elements of largest magnitude: exactly k, among equals the lower index.

    gTop-k, section II: each worker's local selection. Its mask `|x| > thr`, with thr the k-th
    magnitude, keeps k - 1 elements or fewer (deviation: ties at the threshold fill up to k).

    The k-th magnitude of the last step, lowered a little, says where to look first: so a step is
    one pass, and an exact selection among a few candidates. It changes the time, not the result.
    """

    name = "topk"
    joins = True

    density: float = 0.01

    def __post_init__(self) -> None:
        check_density(self.density)

    def is_steady(self, device: torch.device) -> bool:
        return True

    def replays(self, state: State, step: int) -> Hashable | None:
        return ()

    def init(self, spec: TensorSpec) -> State:
        """A threshold that nothing reaches: the first step looks for its own."""

        def number(value: float) -> Tensor:
            return torch.full((), value, dtype=spec.accumulator, device=spec.device)

        return {"threshold": number(math.inf), "gap": number(FIRST_GAP)}

    def select_from(self, x: LazySum, state: State, ctx: StepContext) -> Sparse:
        """Exactly k elements, of each tensor that is selected from apart."""
        if x.numel == 0:
            return take_all(x.dense())
        groups = groups_of(ctx.layout, x.numel, self.density, ctx.density)
        return largest_by_guess(x, groups, state)

    select_parts = select_from


class ExactOnGpu(OnePass):
    """A sparsifier that estimates a threshold, and on a GPU finds exactly k by the last step's.

    There that is one pass as well, has a size that every rank knows, and asks the host nothing.
    """

    __slots__ = ()
    joins = True

    def is_steady(self, device: torch.device) -> bool:
        return device.type == "cuda"

    def replays(self, state: State, step: int) -> Hashable | None:
        return self._exact.replays(state, step)

    def init(self, spec: TensorSpec) -> State:
        """That of the exact selection on a GPU, else its own."""
        return self._exact.init(spec) if self.is_steady(spec.device) else self.init_estimate(spec)

    def select_from(self, x: LazySum, state: State, ctx: StepContext) -> Selection:
        if self.is_steady(x.device):
            return self._exact.select_from(x, state, ctx)
        return self.estimate(x, state, ctx)

    def select_parts(self, x: LazySum, state: State, ctx: StepContext) -> Selection:
        if self.is_steady(x.device):
            return self._exact.select_parts(x, state, ctx)
        return Sparsifier.select_parts(self, x, state, ctx)

    @property
    def _exact(self) -> TopK:
        assert self.density is not None
        return TopK(self.density)

    def init_estimate(self, spec: TensorSpec) -> State:
        """What to remember where it estimates."""
        return {}

    @abstractmethod
    def estimate(self, x: LazySum, state: State, ctx: StepContext) -> Selection:
        """The choice by an estimated threshold."""
