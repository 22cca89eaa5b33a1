"""Top-k by partitions: of as many equal parts of the tensor as there are ranks."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from thinwire.kernels.grouped_topk import Groups
from thinwire.kernels.lazy_sum import LazySum
from thinwire.kernels.next_guess import guess, learn
from thinwire.settings import check_density, target_count
from thinwire.sparsify._common import OnePass, take_all
from thinwire.sparsify._groups import FIRST_GAP, aim
from thinwire.types import PADDING, Sparse, State, StepContext, TensorSpec


@dataclass(frozen=True, slots=True)
class PartitionTopK(OnePass):
    """The density·n/P largest of one of P partitions, another for each rank and in each step.

    MiCRO (Yoon and Oh, 2023): in step t rank r selects in partition (r + t) mod P, so
    that no two ranks select the same element, and all together density·n. `own=False` selects as
    many of each partition, as SparDL does before its reduce-scatter; each rank then has density·n.

    Where we leave the paper: exactly as many and the largest, where it scales a threshold from
    step to step to get about as many. The gradient is added to all of the residual, in the same
    pass; only choosing is a P-th of the work.
    """

    name = "partition"

    density: float = 0.01
    own: bool = True

    def __post_init__(self) -> None:
        check_density(self.density)

    def is_steady(self, device: torch.device) -> bool:
        return True

    def init(self, spec: TensorSpec) -> State:
        """A threshold that nothing reaches: the first step looks for its own."""

        def number(value: float) -> Tensor:
            return torch.full((), value, dtype=spec.accumulator, device=spec.device)

        return {"threshold": number(math.inf), "gap": number(FIRST_GAP)}

    def select_from(self, x: LazySum, state: State, ctx: StepContext) -> Sparse:
        """As many on every rank; where a partition is too short for that, padding in a steady
        step."""
        if x.numel == 0:
            return take_all(x.dense())
        density = self.density if ctx.density is None else ctx.density
        check_density(density)
        ranks = ctx.comm.size
        if not self.own:
            return _largest(x, _of_each(x.numel, ranks, density), ranks, state)
        mine = (ctx.comm.rank + ctx.step) % ranks
        chosen = _largest(x, _of_one(x.numel, ranks, density, mine), 1, state)
        short = _room(x.numel, ranks, density) - chosen.count
        return _padded(chosen, short) if ctx.steady and short else chosen


def partition_edges(numel: int, ranks: int) -> tuple[int, ...]:
    """Where partitions begin, and where the last one ends: they differ by one element at most."""
    return tuple(numel * rank // ranks for rank in range(ranks + 1))


def _room(numel: int, ranks: int, density: float) -> int:
    """How many the longest partition gives, and every rank says that it has."""
    return target_count(-(-numel // ranks), density, None)


@lru_cache(maxsize=1024)
def _of_one(numel: int, ranks: int, density: float, which: int) -> Groups:
    """The partition as the first group, and all else, of which nothing is chosen, as the next."""
    start, end = partition_edges(numel, ranks)[which : which + 2]
    ranges = ((0, start, 1), (start, end, 0), (end, numel, 1))
    count = min(_room(numel, ranks, density), end - start)
    return Groups(tuple(r for r in ranges if r[0] < r[1]), (count, 0))


@lru_cache(maxsize=256)
def _of_each(numel: int, ranks: int, density: float) -> Groups:
    edges = partition_edges(numel, ranks)
    ranges = ((edges[r], edges[r + 1], r) for r in range(ranks))
    sizes = (edges[r + 1] - edges[r] for r in range(ranks))
    counts = tuple(target_count(size, density, None) for size in sizes)
    return Groups(tuple(r for r in ranges if r[0] < r[1]), counts)


def _largest(x: LazySum, groups: Groups, choosing: int, state: State) -> Sparse:
    """Of the first `choosing` groups; one threshold of the last step's says where to look."""
    threshold, gap = state["threshold"].view(1), state["gap"].view(1)
    others = threshold.new_zeros(len(groups.counts) - choosing)
    guesses = torch.cat((guess(threshold, gap, 1).expand(choosing), others))
    chosen = x.grouped_topk(groups, guesses)
    kth, passed = chosen.kth[:choosing].amin().view(1), chosen.passed[:choosing].sum(0, True)
    learn(threshold, gap, kth, passed, aim((sum(groups.counts[:choosing]),), gap))
    return Sparse(chosen.indices, chosen.values, x.numel)


def _padded(chosen: Sparse, more: int) -> Sparse:
    # Not `pad`: the number would go by way of a float.
    indices = torch.cat((chosen.indices, chosen.indices.new_full((more,), PADDING)))
    return Sparse(indices, pad(chosen.values, (0, more)), chosen.numel, padded=True)
