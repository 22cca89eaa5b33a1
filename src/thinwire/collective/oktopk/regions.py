"""Ok-Topk's regions: P contiguous ranges of indices, about equally full, one for each rank."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from thinwire.types import Communicator, Sparse, State

Consensus = Literal["histogram", "average", "equal"]

NEVER = -1  # in place of the step at which something was evaluated
PROBES = 64  # into so many pieces each boundary's range is cut, until it is found
_EXPECTED_ROUNDS = 2  # until all boundaries are found, where selections are spread out
_TOLERANCE = 32  # a boundary may be off by this part of a region's share


@dataclass(frozen=True, slots=True)
class Regions:
    """Where each region starts and ends, and which rank sums it up.

    `edges` are P + 1 ascending int64 numbers on the host, from 0 to the size of the tensor.
    Rank i owns region (i + `shift`) mod P.
    """

    edges: tuple[int, ...]
    shift: int = 0

    @classmethod
    def recall(
        cls, memory: State, numel: int, ranks: int, step: int, interval: int
    ) -> "Regions | None":
        """The remembered regions, if they fit this tensor and this P and are not too old."""
        edges = memory["edges"].tolist() if "edges" in memory else []
        if len(edges) != ranks + 1 or edges[-1] != numel:
            return None
        agreed_at = int(memory["edges_at"])
        fresh = agreed_at != NEVER and 0 <= step - agreed_at < interval
        return cls(tuple(edges), int(memory["shift"])) if fresh else None

    def remember(self, memory: State, step: int) -> None:
        """Keep the regions in the unit's memory; what is kept is the same on every rank."""
        memory["edges"] = torch.tensor(self.edges)
        memory["shift"] = torch.tensor(self.shift)
        memory["edges_at"] = torch.tensor(step)

    @staticmethod
    def forget(memory: State) -> None:
        """Let the next step agree on regions anew."""
        memory["edges_at"] = torch.tensor(NEVER)

    @property
    def count(self) -> int:
        """How many there are: one for each rank."""
        return len(self.edges) - 1

    def owner(self, region: int) -> int:
        """The rank that sums up `region`."""
        return (region - self.shift) % self.count

    def owned_by(self, rank: int) -> int:
        """The region that `rank` sums up."""
        return (rank + self.shift) % self.count

    def start(self, region: int) -> int:
        """The first index of `region`."""
        return self.edges[region]

    def width(self, region: int) -> int:
        """How many elements `region` has, selected or not."""
        return self.edges[region + 1] - self.edges[region]

    def cut(self, s: Sparse) -> list[Sparse]:
        """The ordered `s` by regions, indices counted from the start of each."""
        edges = torch.tensor(self.edges, device=s.indices.device)
        at = torch.searchsorted(s.indices, edges).tolist()
        return [
            Sparse(
                s.indices[at[r] : at[r + 1]] - self.start(r),
                s.values[at[r] : at[r + 1]],
                self.width(r),
            )
            for r in range(self.count)
        ]

    def join(self, parts: Iterable[tuple[int, Sparse]]) -> Sparse:
        """Parts with the regions they are from, in ascending order, as one: what `cut` undoes."""
        located = [(part.indices + self.start(r), part.values) for r, part in parts]
        indices, values = (torch.cat(column) for column in zip(*located, strict=True))
        return Sparse(indices, values, self.edges[-1])


def agree_on_regions(s: Sparse, comm: Communicator, consensus: Consensus) -> Regions:
    """Regions that balance what the ranks selected, the same on every rank.

    Ok-Topk, section 3.1.1, and Algorithm 1, lines 5-7. There each rank cuts its own selection
    into equal parts, and the cuts are averaged ("average" here). That balances the sum only if
    all selections are alike: of two ranks that select at opposite ends, the averaged cut may
    leave a region empty. "histogram" cuts the sum itself: see `_quantiles`. "equal" regions are
    equally wide, whatever was selected: the naive reduce of section 5.3, to compare with.
    """
    cut = {"histogram": _quantiles, "average": _average, "equal": _equally_wide}[consensus]
    regions = Regions((0, *cut(s, comm).tolist(), s.numel))
    return _rotated(regions, s, comm) if consensus == "histogram" and comm.size > 1 else regions


def _equally_wide(s: Sparse, comm: Communicator) -> Tensor:
    return _equal(s.numel, comm.size)


def _equal(numel: int, ranks: int) -> Tensor:
    """The inner edges of regions of equal width."""
    return torch.tensor([numel * r // ranks for r in range(1, ranks)], dtype=torch.int64)


def _average(s: Sparse, comm: Communicator) -> Tensor:
    """The mean over the ranks of where each would cut its own selection."""
    inner = torch.arange(1, comm.size, device=s.indices.device)
    own = s.indices[inner * s.count // comm.size] if s.count else _equal(s.numel, comm.size)
    return comm.all_reduce(own.to(inner)) // comm.size


def _quantiles(s: Sparse, comm: Communicator) -> Tensor:
    """Where the sum of all selections is cut into P equal parts.

    Each cut is searched for in a range, at first the whole tensor: all ranks count what they
    have below each of 64 places in it, the counts are added up (a cumulative histogram of
    64·(P-1) bins, one small allreduce), and the place where the cut belongs becomes the next
    range. Selections that spread out take one or two rounds, clusters a few more. No rank ever
    sees another's indices, and the volume does not depend on k.
    """
    ranks = comm.size
    if ranks == 1:
        return s.indices.new_empty(0)
    low = s.indices.new_zeros(ranks - 1)
    high = torch.full_like(low, s.numel)
    places = torch.arange(PROBES + 1, device=low.device)
    selected: Tensor | None = None
    while True:
        probes = low[:, None] + (high - low)[:, None] * places // PROBES
        below = comm.all_reduce(torch.searchsorted(s.indices, probes))
        if selected is None:
            selected = below[0, -1]
            if not bool(selected):
                return _equal(s.numel, ranks)
            goals = selected * torch.arange(1, ranks, device=low.device)[:, None] // ranks
        at = torch.searchsorted(below, goals, right=True).sub_(1).clamp_(0, PROBES - 1)
        low, high = (probes.gather(1, at + side).squeeze(1) for side in (0, 1))
        under, over = ((below.gather(1, at + side) - goals).squeeze(1) for side in (0, 1))
        close_enough = over - under <= selected // (_TOLERANCE * ranks)
        if bool((close_enough | (high - low <= 1)).all()):
            return torch.where(over < -under, high, low).cummax(0).values


def expected_sums(ranks: int, consensus: Consensus) -> list[int]:
    """How many numbers `agree_on_regions` adds up, sum by sum, where selections are spread out."""
    if consensus != "histogram":
        return [ranks - 1] if consensus == "average" else []
    return [*[(ranks - 1) * (PROBES + 1)] * _EXPECTED_ROUNDS, ranks]


def _rotated(regions: Regions, s: Sparse, comm: Communicator) -> Regions:
    """The same regions, each owned by a rank that selected much in it.

    What a rank selected in its own region need not travel. Of the P rotations the one that
    keeps most at home is taken: at least a P-th of all, which no fixed assignment promises.
    """
    counts = [part.count for part in regions.cut(s)]
    at_home = [counts[(comm.rank + shift) % comm.size] for shift in range(comm.size)]
    kept = comm.all_reduce(torch.tensor(at_home, device=s.indices.device)).tolist()
    return Regions(regions.edges, kept.index(max(kept)))
