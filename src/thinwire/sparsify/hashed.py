"""DRAGONN's selection: hashing instead of compaction."""

import math
from dataclasses import dataclass

import torch

from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_density, check_range, target_count
from thinwire.sparsify._common import OnePass, listed, sampled_threshold, take_all
from thinwire.types import Selection, Sparse, Sparsifier, State, StepContext


@dataclass(frozen=True, slots=True)
class HashedSlots(OnePass):
    """Of all elements that reach a sampled threshold, one for each of `slots`·k slots.

    DRAGONN, sections 4.1 and 4.2: an element writes itself to the slot that its index hashes to,
    and waits for no other. Where n elements meet m slots, m·(1 - (1 - 1/m)^n) slots are filled, so
    of as many elements as slots 63 %; the others are not lost, they stay in the residual. More
    slots lose fewer and read more memory; the count never exceeds them.

    Deviations: the hash is seeded anew in each step, or the same pairs would collide for ever;
    among the writers of a slot the largest index wins, where the paper lets timing decide; empty
    slots are left out, where the paper sends them as (0, 0). A fifth of DGC's sample will do: how
    many reach the threshold need not be right, since the slots bound how many are sent.

    On a GPU all tensors of a bucket, small ones too, share one threshold and one table of slots:
    one launch. Empty slots are sent there, as padding, so that every rank knows the size.
    """

    name = "hashed"
    joins = True

    density: float = 0.001
    slots: float = 1.0  # for each of the k: m/k
    sample: float = 0.002  # share of the elements that the threshold is estimated from

    def __post_init__(self) -> None:
        check_density(self.density)
        check_range("slots", self.slots, 0.1, 100)
        check_range("sample", self.sample, 1e-6, 1)

    def is_steady(self, device: torch.device) -> bool:
        return device.type == "cuda"

    def select_parts(self, x: LazySum, state: State, ctx: StepContext) -> Selection:
        if ctx.steady:
            return self.select_from(x, state, ctx)
        return Sparsifier.select_parts(self, x, state, ctx)

    def select_from(self, x: LazySum, state: State, ctx: StepContext) -> Sparse:
        """At most slots·k elements, each of about the k largest magnitudes."""
        k = target_count(x.numel, self.density, ctx.density)
        if k == x.numel:
            return take_all(x.dense())
        threshold = sampled_threshold(x, k, self.sample, ctx)
        room = math.ceil(self.slots * k)
        found = x.hash_list(threshold, room, ctx.stream("hashed", shared=False))
        if ctx.steady:
            return Sparse(found.indices, found.values, x.numel, padded=True)
        return listed(found, x.numel)
