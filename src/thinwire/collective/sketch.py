"""S2 Reducer: agree on which blocks anyone touches, then allreduce a sketch of what is in them."""

from dataclasses import dataclass

from thinwire.collective._blocks import total_of
from thinwire.collective.touched import agree
from thinwire.settings import check_integer
from thinwire.types import AnyCodec, Collective, ExchangeContext, LinearCodec, Reduced, Selection


@dataclass(frozen=True, slots=True)
class SketchAllReduce(Collective):
    """A bitmap over the blocks, and a linear codec's payload of the values in their union.

    Ge et al., "S2 Reducer: high-performance sparse communication to accelerate distributed deep
    learning", ICASSP 2022, algorithm 1. With a count sketch of ratio λ a rank sends the bitmap and
    2·(P-1)/P of λ times the union's values; `UnionAllReduce` sends 2·(P-1)/P of the values
    themselves, without error. So from λ = 1 on, the sketch has noise and saves nothing.

    The sum is unbiased, not exact. `delivered` is the selection as it was: the noise of the sum is
    not fed back, since it would grow without bound (see `CountSketch`). So what the ranks delivered
    adds up to the sum's mean over all hashes, not to the sum itself.

    Deviations: the payload's size comes from the union, where the paper takes the local count,
    which ranks do not share; and large bitmaps give way to lists of blocks (`touched`).
    """

    name = "sketch-allreduce"

    block: int = 64  # as in UnionAllReduce

    takes = "linear"

    @property
    def conserves(self) -> bool:
        """The noise of the sketch is in the total, and no rank keeps its opposite."""
        return False

    def __post_init__(self) -> None:
        check_integer("block", self.block, 1)

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        assert isinstance(codec, LinearCodec)
        union = agree(s, self.block, ctx)
        with ctx.phase("encode"):
            payload = codec.project(union.placed, ctx)
        with ctx.phase("exchange"):
            total = ctx.comm.all_reduce(payload)
        with ctx.phase("decode"):
            values = codec.recover(total, union.placed.numel, ctx)
            return Reduced(total_of(union.total(values), union.own.numel, ctx), union.own)
