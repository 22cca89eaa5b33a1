"""Selections over the tensors of a unit as groups of one flat tensor, for the kernels."""

from functools import lru_cache

import torch
from torch import Tensor

from thinwire.kernels.grouped_topk import Chosen, Groups
from thinwire.kernels.kept import kept
from thinwire.kernels.lazy_sum import LazySum
from thinwire.kernels.next_guess import guess, learn
from thinwire.settings import target_count
from thinwire.types import Layout, Sparse, State

_WANTED = 1.5  # times k candidates: seldom too few, seldom too many
FIRST_GAP = 0.1


@lru_cache(maxsize=1024)
def groups_of(layout: Layout | None, numel: int, density: float, scheduled: float | None) -> Groups:
    """The selecting groups in the order of the state's rows, then one of all that is let past."""
    if layout is None or layout.is_plain:
        return Groups(((0, numel, 0),), (target_count(numel, density, scheduled),))
    sizes = [0] * (sum(not past for past in layout.past) if layout.each else 1)
    ranges, group, all_past = [], 0, 0
    for _, start, end, past in layout.parts():
        if start == end:
            group += layout.each and not past
            continue
        ranges.append((start, end, len(sizes) if past else group))
        if past:
            all_past += end - start
        else:
            sizes[group] += end - start
            group += layout.each
    counts = [target_count(size, density, scheduled) for size in sizes]
    return Groups(tuple(ranges), (*counts, all_past) if all_past else tuple(counts))


def largest_by_guess(x: LazySum, groups: Groups, state: State) -> Sparse:
    """Exactly the k largest of each group, in one pass where the last step's thresholds serve.

    `state` has a "threshold" and a "gap" for each group, or one of each: where the last step's
    k-th magnitudes were, and how far below to look now. The gap follows the number of candidates,
    on the device: how far depends on how long values wait in a residual, which piles them up just
    below the threshold.
    """
    threshold, gap = state["threshold"].view(-1), state["gap"].view(-1)
    chosen: Chosen = x.grouped_topk(groups, guess(threshold, gap, len(groups.counts)))
    learn(threshold, gap, chosen.kth, chosen.passed, aim(groups.counts[: gap.numel()], gap))
    return Sparse(chosen.indices, chosen.values, x.numel)


def aim(counts: tuple[int, ...], like: Tensor) -> Tensor:
    """How many candidates there should be where so many are chosen."""
    return _on_device(counts, like.device, like.dtype)


@kept(1024)
def _on_device(counts: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Kept: bringing numbers to a device makes the host wait."""
    return torch.tensor([_WANTED * count for count in counts], dtype=dtype, device=device)
