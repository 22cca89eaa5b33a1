"""The k largest of each group on CUDA: a few plain launches, and the host asks nothing.

1. Each tile is read, added to, and leaves a mark for each element that reaches its group's guess.
2. The marks are listed in order: the candidates. It is decided for each group whether the guess
   held; if it did, its candidates are looked at from now on, else its elements in `x`.
3. The k-th magnitude by a radix selection: its bits, eight at a time from the top, a launch each,
   from a histogram of the elements that agree with it so far.
4. A launch counts, for each piece of work, what is larger than the k-th and what is equal.
5. So each piece knows its place in the result, and the last launch writes it.

No program waits for another: what a launch needs of all, the launch before has left in memory.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from thinwire.kernels._triton import summands
from thinwire.kernels.addend import Addend
from thinwire.kernels.compact import Found
from thinwire.kernels.grouped_topk.groups import Chosen, Groups
from thinwire.kernels.grouped_topk.launches import adopt, count, emit, list_marked, mark, tally
from thinwire.kernels.grouped_topk.rounds import scratch_words
from thinwire.kernels.grouped_topk.tables import Tables, tables

LISTERS = 512  # programs that list: each sums up the counts before its own
PROGRAMS_A_MULTIPROCESSOR = 8  # that walk over the slots
WARPS = 4


class _Selection(NamedTuple):
    """What the launches of one selection share."""

    planned: Tables
    sizes: tuple[int, int, int, int]  # as the kernels take them
    cleared: int
    scratch: Tensor
    rounds: int

    @staticmethod
    def of(x: Tensor, groups: Groups) -> "_Selection":
        planned, rounds = tables(groups, x.element_size(), x.device), x.element_size()
        sizes = (len(groups.counts), planned.choosing, planned.choosing_tiles, planned.slots)
        words, cleared = scratch_words(*sizes, planned.rows, rounds)
        scratch = torch.empty(words, dtype=torch.int64, device=x.device)
        return _Selection(planned, sizes, cleared, scratch, rounds)

    def choose(self, x: Tensor, names: Tensor, candidates: Tensor, total: int) -> Chosen:
        """What comes after the candidates are there."""
        planned, sizes, _, scratch, rounds = self
        chosen = _room_for(x, total, sizes[0])
        grid = (max(1, min(_programs(x), planned.slots + planned.other_tiles)),)
        read = (x, planned.tiles, planned.groups)
        if planned.choosing:
            for place in range(rounds):
                tally[grid](
                    *read, names, candidates, scratch, *sizes, rounds, place, num_warps=WARPS
                )
            count[grid](*read, candidates, scratch, *chosen[2:], *sizes, rounds, num_warps=WARPS)
        emit[grid](
            *read, names, candidates, scratch, *chosen, *sizes, planned.other_tiles, rounds,
            num_warps=WARPS,
        )  # fmt: skip
        return chosen


def grouped_topk(x: Tensor, groups: Groups, guess: Tensor, addend: Addend | None = None) -> Chosen:
    if not groups.counts:
        return _room_for(x, 0, 0)
    selection = _Selection.of(x, groups)
    planned, sizes, cleared, scratch, rounds = selection
    names = torch.empty(planned.room, dtype=torch.int64, device=x.device)
    candidates = torch.empty(planned.room, dtype=x.dtype, device=x.device)
    all_tiles = planned.choosing_tiles + planned.other_tiles
    mark[(all_tiles,)](
        x, *summands(x, addend), guess, planned.tiles, scratch, *sizes, cleared, rounds,
        planned.rows, num_warps=planned.warps, enable_fp_fusion=False,
    )  # fmt: skip
    list_marked[(min(max(planned.choosing_tiles, planned.other_tiles), LISTERS),)](
        x, planned.tiles, planned.groups, names, scratch, *sizes, planned.other_tiles, rounds,
        planned.rows, num_warps=WARPS,
    )  # fmt: skip
    if addend:
        addend.clear_gradient()
    return selection.choose(x, names, candidates, groups.total)


def among(candidates: Found, x: Tensor, k: int) -> Chosen:
    """The k largest of all of `x`, where the candidates are at hand."""
    selection = _Selection.of(x, Groups(((0, x.numel(), 0),), (k,)))
    planned, sizes, cleared, scratch, rounds = selection
    adopt[(1,)](
        candidates.count, candidates.capacity, planned.groups, scratch, *sizes, cleared, rounds,
        num_warps=WARPS,
    )  # fmt: skip
    return selection.choose(x, candidates.indices, candidates.values, k)


def _room_for(x: Tensor, total: int, groups: int) -> Chosen:
    """Memory for a result."""
    return Chosen(
        torch.empty(total, dtype=torch.int64, device=x.device),
        torch.empty(total, dtype=x.dtype, device=x.device),
        torch.empty(groups, dtype=x.dtype, device=x.device),
        torch.empty(groups, dtype=torch.int64, device=x.device),
    )


def _programs(x: Tensor) -> int:
    """How many walk over the slots; Triton's interpreter runs one after the other."""
    if x.device.type != "cuda":
        return 3
    units: int = torch.cuda.get_device_properties(x.device).multi_processor_count
    return PROGRAMS_A_MULTIPROCESSOR * units
