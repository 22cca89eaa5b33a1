"""Ok-Topk: a sparse allreduce whose volume is O(k), whatever the number of ranks.

Li and Hoefler, "Near-optimal sparse allreduce for distributed deep learning", PPoPP 2022.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from thinwire.collective.oktopk.balance import Balance, Shares, gather
from thinwire.collective.oktopk.regions import Consensus, Regions, agree_on_regions
from thinwire.collective.oktopk.split import Split, split_and_reduce
from thinwire.collective.oktopk.steady import exchange_steadily
from thinwire.collective.oktopk.threshold import (
    NO_THRESHOLD,
    as_number,
    count_passing,
    keep,
    kth_largest,
    magnitude_bits,
    quotas,
    recall_threshold,
    remember_threshold,
)
from thinwire.errors import RecipeError
from thinwire.kernels.region_reduce import common, region_reduce
from thinwire.settings import check_choice, check_density, check_integer, check_range
from thinwire.types import (
    AnyCodec,
    Codec,
    Collective,
    ExchangeContext,
    Reduced,
    Selection,
    Sparse,
    State,
)


@dataclass(frozen=True, slots=True)
class OkTopK(Collective):
    """Topk(Σ selections): about `density`·n elements of the sum of what all ranks selected.

    Algorithm 1 of the paper, whose inner top-k is the sparsifier's (use `ReusedThreshold`):

    1. lines 5-7: regions of indices, one per rank, about equally full, agreed on every
       `boundary_interval` steps, and at once after a step in which one was `imbalance` times
       as full as the mean;
    2. line 8: each rank sends every other its entries in that one's region, `in_flight` messages
       at a time, and adds up its own region;
    3. lines 9-12: the global threshold is the k-th largest magnitude of all sums, evaluated every
       `threshold_interval` steps and reused in between;
    4. line 13: what reaches it is gathered by all, after evening out the ranks' shares where one
       is more than `balance_above` times the mean;
    5. line 14: this rank delivered what it had selected and the threshold let through. That is
       exact: a region is summed before it is pruned, so an index survives with all or nothing.

    Deviations, each explained where it is made: the summed selections are cut, not each rank's
    own (`agree_on_regions`); regions are owned where much of them was selected; the threshold
    comes from histograms of bits, not from a gather of all values (`kth_largest`); shares are
    balanced also where the rule of four times the mean would break the bound (`Shares.plan`).
    `consensus="average"` and `balance="rule"` are the paper's; "equal" regions and the direct
    allgatherv of `balance="never"` are what section 5.3 compares with (figure 7). Thresholds,
    counts and imbalances are series in `stats()`.

    The count. A step that evaluates takes exactly k (or all there are, if fewer). In between it is
    what reaches the old threshold; outside [`low`·k, `high`·k] the threshold is evaluated anew in
    the same step, since it is stale at once while residuals ramp up. More than `cap`·k are never
    taken, whatever `high` says.

    On a GPU, where nothing may be asked of the host, regions and thresholds are not kept but made
    anew in each step, and counts are fixed: see `steady`. The intervals and limits below serve the
    way described above.

    The volume. With s the most that a rank selected, g the count taken and k = max(s, g), a rank
    sends at most 6k·(P-1)/P words of 4 bytes in raw codecs (2 words per entry): with P ≥ 4 whatever
    was selected where, with P = 2 because regions are owned where they are full, and with P = 3
    but for selections made up against it (8 % more). It receives no more, once boundaries fit the
    selections; a step that finds out that they do not is the last one to use them. On top come 72
    bytes for each message (header, padding, its announced length), 48 per peer for the counts,
    and in steps that evaluate anew the histograms: 4 KiB for each of the four digits of a float32
    threshold, about P KiB for each round of the boundaries.
    """

    name = "ok-topk"
    prunes = True

    density: float | None = None  # of the sum; None: as the sparsifier's
    boundary_interval: int = 64  # τ: section 3.1.1
    threshold_interval: int = 32  # τ': section 5.2; 128 for BERT
    in_flight: int = 4  # bucketing: section 3.1.1, figure 2c
    balance_above: float = 4.0  # section 5.3
    low: float = 0.75
    high: float = 1.25
    cap: float = 2.0
    imbalance: float = 1.5
    consensus: Consensus = "histogram"
    balance: Balance = "bound"

    def __post_init__(self) -> None:
        if self.density is not None:
            check_density(self.density)
        check_integer("boundary_interval", self.boundary_interval, 1)
        check_integer("threshold_interval", self.threshold_interval, 1)
        check_integer("in_flight", self.in_flight, 1)
        check_range("balance_above", self.balance_above, 1)
        check_range("low", self.low, 0, 1)
        check_range("high", self.high, 1)
        check_range("cap", self.cap, 1)
        check_range("imbalance", self.imbalance, 1)
        check_choice("consensus", self.consensus, get_args(Consensus))
        check_choice("balance", self.balance, get_args(Balance))

    def without_loss(self) -> "OkTopK":
        """The same for a k that is everything: regions are added up, and all of it gathered."""
        return replace(self, density=1.0)

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        assert isinstance(codec, Codec)
        self.refuse(codec)
        if ctx.steady and isinstance(s, Sparse):
            wanted = ctx.pruned_count(s.numel, self.density)
            return exchange_steadily(s.sorted(), codec, wanted, ctx)
        mine = _elements(s)
        with ctx.phase("select"):
            regions = self._regions(mine, ctx)
        split = split_and_reduce(mine, regions, codec, self.in_flight, ctx)
        with ctx.phase("select"):
            survivors, shares = self._select(split, regions, ctx)
        total = gather(survivors, shares, regions, codec, ctx)
        with ctx.phase("select"):
            here = regions.owned_by(ctx.comm.rank)
            rounding = total.values[shares.region(here)] - survivors.values
            charged = Sparse(total.indices[shares.region(here)], rounding, total.numel)
            return Reduced(total, _share_of(split.added, charged, total))

    def is_steady(self, codec: AnyCodec) -> bool:
        return isinstance(codec, Codec) and codec.is_steady

    def replays(self, state: State, step: int) -> Hashable | None:
        return ()

    def refuse(self, codec: AnyCodec) -> None:
        """Shares are planned by counts, so that every index must arrive and no other one may."""
        if isinstance(codec, Codec) and not codec.keeps_indices:
            raise RecipeError(
                f"{codec!r} may return other indices than it was given; then nobody knows which "
                "of its elements Ok-Topk delivered. Use a lossless index codec"
            )

    def _regions(self, mine: Sparse, ctx: ExchangeContext) -> Regions:
        """The regions of this step: remembered, or agreed upon now."""
        comm, memory = ctx.comm, ctx.memory
        known = Regions.recall(memory, mine.numel, comm.size, ctx.step, self.boundary_interval)
        ctx.note("regions_agreed", float(known is None))
        if known is not None:
            return known
        regions = agree_on_regions(mine, comm, self.consensus)
        regions.remember(memory, ctx.step)
        return regions

    def _select(
        self, split: Split, regions: Regions, ctx: ExchangeContext
    ) -> tuple[Sparse, Shares]:
        """What of this rank's region survives, and where all survivors are.

        All that is decided here is decided from numbers that every rank has.
        """
        reduced, comm = split.reduced, ctx.comm
        bits = magnitude_bits(reduced.values)
        known = recall_threshold(ctx.memory, reduced.values, ctx.step, self.threshold_interval)
        mine = [split.added.count, split.sent, split.load, reduced.count]
        mine += count_passing(bits, known)
        counts = Counts(*_columns(comm.all_gather_meta(mine)))
        # One index may be everyone's choice: P entries that no boundary can part.
        if max(counts.loads) > self.imbalance * sum(counts.loads) / comm.size + comm.size:
            Regions.forget(ctx.memory)

        sums = sum(counts.reduced)
        wanted = min(ctx.pruned_count(split.added.numel, self.density), sums)
        if wanted == sums:  # no threshold is needed, nor learnt
            threshold, above, ties = NO_THRESHOLD, counts.reduced, [0] * comm.size
        else:
            threshold, above, ties = self._threshold(bits, known, counts, wanted, reduced, ctx)
        evaluated = threshold not in (NO_THRESHOLD, known)
        kept = keep(bits, threshold, ties[comm.rank])
        survivors = Sparse(reduced.indices[kept], reduced.values[kept], reduced.numel)
        owners = [regions.owner(region) for region in range(comm.size)]
        shares = Shares.plan(
            counts=[above[rank] + ties[rank] for rank in owners],
            sent=[counts.sent[rank] for rank in owners],
            selected=max(counts.selected),
            balance_above=self.balance_above,
            balance=self.balance,
        )
        ctx.note("global_threshold", float(as_number(max(threshold, 0), reduced.values)))
        ctx.note("threshold_evaluated", float(evaluated))
        ctx.note("global_count", sum(shares.owned))
        ctx.note("reduce_imbalance", _over_mean(counts.loads))
        ctx.note("gather_imbalance", _over_mean(shares.owned))
        ctx.note("balanced", float(shares.balanced))
        return survivors, shares

    def _threshold(
        self,
        bits: Tensor,
        known: int | None,
        counts: "Counts",
        wanted: int,
        reduced: Sparse,
        ctx: ExchangeContext,
    ) -> tuple[int, list[int], list[int]]:
        """The threshold of this step, and by ranks how many are above it and how many ties stay."""
        above, tied = counts.above, counts.tied
        count = sum(above) + sum(tied)
        if known is not None and sum(above) <= wanted <= count:
            # Still the k-th largest of all; ties, of which there may be many, fill up to k.
            return known, above, quotas(tied, wanted - sum(above))
        serves = known is not None and self.low * wanted <= count <= self.high * wanted
        if known is not None and serves and count <= self.cap * wanted:
            return known, above, tied
        most = math.floor(self.cap * wanted) if serves else wanted
        threshold = kth_largest(bits, most, ctx.comm)
        if not serves:
            remember_threshold(threshold, reduced.values, ctx.memory, ctx.step)
        above, tied = _columns(ctx.comm.all_gather_meta(count_passing(bits, threshold)))
        return threshold, above, quotas(tied, most - sum(above))


class Counts(NamedTuple):
    """What the ranks tell each other between the two phases: numbers of entries, by rank."""

    selected: list[int]
    sent: list[int]  # to other regions
    loads: list[int]  # added up, before equal indices became one
    reduced: list[int]  # sums
    above: list[int]  # sums above the known threshold
    tied: list[int]  # sums that equal it


def _elements(s: Selection) -> Sparse:
    """The selection as single elements in ascending order; a dense one is all of them."""
    if isinstance(s, Sparse):
        return s.elements().sorted()
    return Sparse(torch.arange(s.numel(), device=s.device), s, s.numel())


def _columns(rows: list[list[int]]) -> list[list[int]]:
    """What the ranks said, by topic."""
    return [list(column) for column in zip(*rows, strict=True)]


def _over_mean(counts: Sequence[int]) -> float:
    """The largest over the mean."""
    return max(counts) * len(counts) / max(1, sum(counts))


def _share_of(added: Sparse, rounding: Sparse, total: Sparse) -> Sparse:
    """What this rank delivered: what of its selection survived, and the rounding it answers for.

    Algorithm 1, line 14, the intersection of local and global top-k. What was pruned stays with
    those that selected it. The owner of a region is charged for rounding its sums on the wire.
    """
    kept = common(added.indices, total.indices)
    share = Sparse(added.indices[kept], added.values[kept], total.numel)
    if not bool(rounding.values.any()):
        return share
    return region_reduce([share, rounding], total.numel)
