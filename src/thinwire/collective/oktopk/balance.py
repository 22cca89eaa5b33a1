"""Ok-Topk, phase 2: balance and allgatherv (section 3.1.2; Algorithm 1, line 13)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

import torch
from torch import Tensor

from thinwire.collective.oktopk.messages import announced, decode_part, encode_part
from thinwire.collective.oktopk.regions import Regions
from thinwire.errors import WireFormatError
from thinwire.types import Codec, ExchangeContext, Sparse

Balance = Literal["bound", "rule", "never"]


@dataclass(frozen=True, slots=True)
class Shares:
    """Who holds which of the survivors while they are gathered.

    All survivors in ascending order, region after region, form one line. `region_cuts` cuts it
    by regions, `piece_cuts` by what is held: piece j is in the hands of the owner of region j.
    Both go from 0 to the end of the line. Unless shares are balanced, the two are the same.
    """

    region_cuts: tuple[int, ...]
    piece_cuts: tuple[int, ...]

    @classmethod
    def plan(
        cls,
        counts: Sequence[int],
        sent: Sequence[int],
        selected: int,
        balance_above: float,
        balance: Balance = "bound",
    ) -> "Shares":
        """Pieces for regions with so many survivors, whose owners sent so much in phase 1.

        The paper makes pieces equal where the largest share is more than four times the mean
        (section 5.3). That alone does not keep its bound of 6k·(P-1)/P words, 3k·(P-1)/P entries:
        a holder sends its piece P-1 times, so a share of three times the mean breaks it; and with
        P ≤ 4 no share can exceed four times the mean, even if one rank holds everything. So we
        also balance where the bound would be broken, k being the larger of `selected`, the most
        that a rank selected, and the survivors. Pieces are equal for all ranks or for all but the
        busiest, which passes its survivors on once and keeps none; of these plans, and that of
        leaving all as it is, the one is taken whose busiest rank sends least.

        To compare with: `balance="rule"` is the paper's rule alone, "never" its direct allgatherv.
        """
        ranks, total = len(counts), sum(counts)
        cuts = (0, *accumulate(counts))
        as_is = cls(cuts, cuts)
        uneven = max(counts) * ranks > balance_above * total
        within = as_is.most_sent(sent) <= 3 * max(selected, total) * (ranks - 1) / ranks
        if balance == "never" or (not uneven and (within or balance == "rule")):
            return as_is
        busiest = max(range(ranks), key=lambda r: sent[r] + counts[r])
        holders = [1] * ranks, [int(r != busiest) for r in range(ranks)]
        plans = [as_is, *(as_is._cut_among(among) for among in holders if any(among))]
        return min(plans, key=lambda plan: plan.most_sent(sent))

    @property
    def owned(self) -> list[int]:
        """How many survivors each region has."""
        return [end - start for start, end in pairwise(self.region_cuts)]

    @property
    def balanced(self) -> bool:
        """Whether survivors change hands before they are gathered."""
        return self.piece_cuts != self.region_cuts

    def overlap(self, region: int, piece: int) -> slice:
        """Which of the region's survivors are in the piece, counted from the region's first."""
        first = self.region_cuts[region]
        start = max(first, self.piece_cuts[piece])
        stop = min(self.region_cuts[region + 1], self.piece_cuts[piece + 1])
        return slice(start - first, max(start, stop) - first)

    def pieces_of(self, region: int) -> list[int]:
        """The pieces that the region's survivors are in."""
        return [j for j in range(len(self.piece_cuts) - 1) if _length(self.overlap(region, j))]

    def regions_of(self, piece: int) -> list[int]:
        """The regions that the piece's survivors are from."""
        return [r for r in range(len(self.region_cuts) - 1) if _length(self.overlap(r, piece))]

    def region(self, region: int) -> slice:
        """The region's survivors in the line of all."""
        return slice(*self.region_cuts[region : region + 2])

    def _cut_among(self, holders: Sequence[int]) -> "Shares":
        """The same survivors in equal pieces for those that hold one."""
        total, so_far = self.region_cuts[-1], (0, *accumulate(holders))
        return Shares(self.region_cuts, tuple(total * n // sum(holders) for n in so_far))

    def most_sent(self, sent: Sequence[int]) -> int:
        """Entries that the busiest rank sends in both phases."""
        held = [end - start for start, end in pairwise(self.piece_cuts)]
        return max(
            sent[r] + self.owned[r] - _length(self.overlap(r, r)) + held[r] * (len(held) - 1)
            for r in range(len(held))
        )


def gather(
    survivors: Sparse, shares: Shares, regions: Regions, codec: Codec, ctx: ExchangeContext
) -> Sparse:
    """All survivors on all ranks, the same bits everywhere: also the owner takes the decoded ones.

    The owner encodes its survivors once, cut by pieces. Holders pass the messages on as they are,
    so that values are rounded once, and by their owner.
    """
    here = regions.owned_by(ctx.comm.rank)
    with ctx.phase("encode"):
        wires = {}
        for piece in shares.pieces_of(here):
            cut = shares.overlap(here, piece)
            part = Sparse(survivors.indices[cut], survivors.values[cut], survivors.numel)
            wires[piece] = encode_part(part, codec, ctx)
    with ctx.phase("exchange"):
        held = _balanced(wires, here, shares, regions, survivors.indices.device, ctx)
        payloads = ctx.comm.all_gather(_framed(held, survivors.indices.device))
    with ctx.phase("decode"):
        located = []
        for piece in range(regions.count):
            sources = shares.regions_of(piece)
            messages = _unframed(payloads[regions.owner(piece)], len(sources))
            for region, wire in zip(sources, messages, strict=True):
                part = decode_part(wire, survivors, regions.width(region), codec, ctx)
                expected = _length(shares.overlap(region, piece))
                if part.count != expected:
                    raise WireFormatError(f"{expected} survivors were due, found {part.count}")
                located.append((region, part))
        return regions.join(located or [(here, survivors)])


def _balanced(
    wires: dict[int, Tensor],
    here: int,
    shares: Shares,
    regions: Regions,
    device: torch.device,
    ctx: ExchangeContext,
) -> list[Tensor]:
    """The messages of this rank's piece in ascending order, after all have changed hands."""
    sources = shares.regions_of(here)
    outgoing = {regions.owner(piece): wire for piece, wire in wires.items() if piece != here}
    incoming: dict[int, Tensor] = {}
    if shares.balanced:
        others = [regions.owner(region) for region in sources if region != here]
        incoming = announced(outgoing, others, device, ctx)
        ctx.comm.exchange(outgoing, incoming)
    return [wires[here] if r == here else incoming[regions.owner(r)] for r in sources]


def _framed(messages: list[Tensor], device: torch.device) -> Tensor:
    """One payload: the messages, and if there are several, first their lengths."""
    if len(messages) == 1:
        return messages[0]
    lengths = torch.tensor([m.numel() for m in messages], dtype=torch.int64, device=device)
    return torch.cat((lengths.view(torch.uint8), *messages))


def _unframed(payload: Tensor, count: int) -> list[Tensor]:
    """The `count` messages of a payload."""
    if count == 1:
        return [payload]
    head = 8 * count
    if payload.numel() < head:
        raise WireFormatError(f"{count} lengths take {head} bytes, found {payload.numel()}")
    lengths = payload[:head].clone().view(torch.int64).tolist()
    if min(lengths, default=0) < 0 or sum(lengths) != payload.numel() - head:
        raise WireFormatError(f"{payload.numel() - head} bytes are not messages of {lengths}")
    return list(payload[head:].split(lengths))


def _length(cut: slice) -> int:
    length: int = cut.stop - cut.start
    return length
