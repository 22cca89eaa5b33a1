"""SparDL (Zhao et al., ICDE 2024): a reduce-scatter that prunes on its way, and loses nothing."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from thinwire.collective._owners import delivered_of, lost_on
from thinwire.collective._received import decode_like
from thinwire.collective._tree import tree_rounds
from thinwire.collective.oktopk.regions import Regions
from thinwire.errors import RecipeError
from thinwire.kernels.merge import merge, split_top
from thinwire.settings import check_density
from thinwire.types import AnyCodec, Codec, Collective, ExchangeContext, Reduced, Selection, Sparse


@dataclass(frozen=True, slots=True)
class SparDL(Collective):
    """P blocks of n/P elements, of which k/P are kept in every partial sum; then an allgather.

    Its Spar-Reduce-Scatter, for any P: in ⌈log2 P⌉ rounds, the farthest first, a rank passes on
    the blocks of those that are as far away or farther, adds what comes to its own, and prunes
    each block to k/P. Blocks never grow, so that a rank sends 2k·(P-1)/P words there, and as many
    in the allgather of the sums, with raw codecs: 2/P of what TopkA sends.

    Whoever prunes a partial sum keeps it, in its own residual, and so does whoever rounds one:
    that is what its global residual collection is for, and here nothing is lost.

    Where we leave the paper: no teams (its d = 1), and the allgather is one round, from each to
    all, of as many words as ⌈log2 P⌉ rounds would send. `partition(own=False)` selects as many of
    each block as it keeps; other selections are pruned to that first.
    """

    name = "spardl"
    prunes = True

    density: float | None = None  # of the sum; None: as the sparsifier's

    def __post_init__(self) -> None:
        if self.density is not None:
            check_density(self.density)

    def without_loss(self) -> "SparDL":
        """The same for a k that is everything."""
        return SparDL(density=1.0)

    def refuse(self, codec: AnyCodec) -> None:
        if isinstance(codec, Codec) and not codec.keeps_indices:
            raise RecipeError(
                f"SparDL sends several blocks at once and needs a lossless index codec, not {codec}"
            )

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        assert isinstance(codec, Codec)
        if not isinstance(s, Sparse):
            raise RecipeError(
                "SparDL prunes sparse selections: choose a sparsifier such as TopK, or the "
                "collective Dense or AllGather for whole tensors"
            )
        own, me, size = s.sorted().elements(), ctx.comm.rank, ctx.comm.size
        blocks = _Blocks.of(own.numel, size, self.density, ctx)
        held, lost = _scatter(own, blocks, codec, ctx)
        with ctx.phase("encode"):
            parts = blocks.regions.cut(held)
            mine = parts[me]
            wire = codec.encode(mine, ctx)
        with ctx.phase("exchange"):
            gathered = ctx.comm.all_gather(wire)
        with ctx.phase("decode"):
            each = zip(gathered, parts, strict=True)
            totals = [_decode(other, part, codec, ctx) for other, part in each]
            lost.append(blocks.regions.join([(me, lost_on(wire, mine, codec, ctx))]))
            return Reduced(blocks.regions.join(enumerate(totals)), delivered_of(own, lost))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Where blocks are, and how many elements of each are kept."""

    regions: Regions
    rooms: tuple[int, ...]

    @classmethod
    def of(cls, numel: int, ranks: int, density: float | None, ctx: ExchangeContext) -> "_Blocks":
        regions = Regions(tuple(numel * rank // ranks for rank in range(ranks + 1)))
        rooms = (ctx.pruned_count(regions.width(rank), density) for rank in range(ranks))
        return cls(regions, tuple(rooms))

    def prune(self, s: Sparse) -> tuple[Sparse, Sparse]:
        """The largest of each block, and the rest."""
        parts = enumerate(zip(self.regions.cut(s), self.rooms, strict=True))
        split = [(block, split_top(part, room)) for block, (part, room) in parts]
        return (
            self.regions.join((block, kept) for block, (kept, _) in split),
            self.regions.join((block, gone) for block, (_, gone) in split),
        )

    def take(self, s: Sparse, wanted: Iterable[int]) -> Sparse:
        """What of `s` lies in some of the blocks."""
        parts = self.regions.cut(s)
        return self.regions.join((block, parts[block]) for block in sorted(wanted))


def distances(size: int) -> list[int]:
    """How far blocks go in each round: the largest power of two below P first."""
    return [1 << hop for hop in reversed(range(tree_rounds(size)))]


def blocks_sent(distance: int, size: int) -> int:
    """How many blocks a rank passes on over this distance."""
    return min(2 * distance, size) - distance


def _scatter(
    own: Sparse, blocks: _Blocks, codec: Codec, ctx: ExchangeContext
) -> tuple[Sparse, list[Sparse]]:
    """This rank's block of the sum, and what this rank took out of partial sums."""
    comm, me, size = ctx.comm, ctx.comm.rank, ctx.comm.size
    with ctx.phase("select"):
        held, pruned = blocks.prune(own)
    lost = [pruned]
    for distance in distances(size):
        target, source = (me + distance) % size, (me - distance) % size
        there = [(me + ahead) % size for ahead in range(distance, min(2 * distance, size))]
        here = [(me + ahead) % size for ahead in range(distance)]
        with ctx.phase("encode"):
            away = blocks.take(held, there)
            wire = codec.encode(away, ctx)
        with ctx.phase("exchange"):
            arrived = comm.exchange_sized({target: wire}, (source,), wire.device)[source]
        with ctx.phase("decode"):
            lost.append(lost_on(wire, away, codec, ctx))
            theirs = _decode(arrived, own, codec, ctx)
        with ctx.phase("select"):
            held, pruned = blocks.prune(merge(blocks.take(held, here), theirs))
        lost.append(pruned)
    return held, lost


def _decode(wire: Tensor, like: Sparse, codec: Codec, ctx: ExchangeContext) -> Sparse:
    return decode_like(wire, like, codec, ctx).sorted()
