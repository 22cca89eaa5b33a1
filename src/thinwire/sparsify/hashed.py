"""DRAGONN's selection: hashing instead of compaction."""

import math
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_density, check_integer, check_range, target_count
from thinwire.sparsify._common import OnePass, listed, sampled_threshold, take_all
from thinwire.types import Selection, Sparse, Sparsifier, State, StepContext, TensorSpec

_NEVER = -1  # in place of the step at which the threshold was sampled


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
    one launch. The slots are sent as they are, so that nothing is listed in order and every rank
    knows the size; empty ones are padding. Finding a threshold takes more launches there than all
    the rest: one serves for `interval` steps, for fewer at the beginning of training, when what
    waits grows fast, and only while the density stays what it was.
    """

    name = "hashed"
    joins = True

    density: float = 0.001
    slots: float = 1.0  # for each of the k: m/k
    sample: float = 0.002  # share of the elements that the threshold is estimated from
    interval: int = 16  # steps that a threshold serves, on a GPU

    def __post_init__(self) -> None:
        check_density(self.density)
        check_range("slots", self.slots, 0.1, 100)
        check_range("sample", self.sample, 1e-6, 1)
        check_integer("interval", self.interval, 1)

    def is_steady(self, device: torch.device) -> bool:
        return device.type == "cuda"

    def init(self, spec: TensorSpec) -> State:
        """For steady steps the threshold, and on the host which step sampled it, for which k."""
        threshold = torch.zeros((), dtype=spec.accumulator, device=spec.device)
        step, count = torch.tensor(_NEVER), torch.tensor(0)
        return {"threshold": threshold, "sampled_at": step, "sampled_for": count}

    def select_parts(self, x: LazySum, state: State, ctx: StepContext) -> Selection:
        if ctx.steady:
            return self.select_from(x, state, ctx)
        return Sparsifier.select_parts(self, x, state, ctx)

    def select_from(self, x: LazySum, state: State, ctx: StepContext) -> Sparse:
        """At most slots·k elements, each of about the k largest magnitudes."""
        k = target_count(x.numel, self.density, ctx.density)
        if k == x.numel:
            return take_all(x.dense())
        room = math.ceil(self.slots * k)
        if ctx.steady:
            seed = ctx.seed_on(x.device, "hashed", shared=False)
            indices, values = x.hash_slots(self._threshold(x, k, state, ctx), room, seed)
            return Sparse(indices, values, x.numel, ordered=False, padded=True)
        threshold = sampled_threshold(x, k, self.sample, ctx)
        slots = x.hash_list(threshold, room, ctx.stream("hashed", shared=False))
        return listed(slots, x.numel)

    def replays(self, state: State, step: int) -> Hashable | None:
        """Steps that sample a threshold do more than the others."""
        return self._serves_for(state, step)

    def _serves_for(self, state: State, step: int) -> int | None:
        """The k that a threshold is known for which serves in this step; None if there is none."""
        saved = (state[key].view(-1).tolist() for key in ("sampled_at", "sampled_for"))
        known = set(zip(*saved, strict=True))  # of several tensors' states
        sampled, count = known.pop()
        serves = min(self.interval, max(1, sampled // 2))
        here = not known and sampled != _NEVER and 0 < step - sampled < serves
        return count if here else None

    def _threshold(self, x: LazySum, k: int, state: State, ctx: StepContext) -> Tensor:
        """That of some steps ago, or one for this step and some more."""
        if self._serves_for(state, ctx.step) != k:
            state["threshold"].copy_(sampled_threshold(x, k, self.sample, ctx))
            for key, number in (("sampled_at", ctx.step), ("sampled_for", k)):
                state[key] = torch.full_like(state[key], number)
        return state["threshold"].view(-1)[0]
