"""Union allreduce: agree on which blocks anyone touches, then one dense allreduce over these."""

from dataclasses import dataclass

from torch import Tensor

from thinwire.collective._blocks import total_of
from thinwire.collective.dense import Dense
from thinwire.collective.touched import agree
from thinwire.settings import check_integer
from thinwire.types import AnyCodec, Collective, ExchangeContext, Reduced, Selection


@dataclass(frozen=True, slots=True)
class UnionAllReduce(Collective):
    """Indices cost one bit per block, and the backend's own allreduce adds the values.

    Ours. It pays where the ranks touch much the same blocks: `RandomK(shared=True)`, `BlockTopK`,
    embeddings of frequent words, whose rows are the blocks. A rank sends the bitmap (or, of very
    many blocks, the list of its own), and 2·(P-1)/P of the union's values, so when the union is
    everything it is dense allreduce and a bitmap. Lossless for what was selected with "fp32";
    "fp16" and "bf16" round as in `Dense`.
    """

    name = "union"

    block: int = 64  # one bit of bitmap for 2048 of values
    dtype: str = "fp32"

    takes = "none"

    def __post_init__(self) -> None:
        check_integer("block", self.block, 1)
        Dense(self.dtype)  # knows which there are

    def without_loss(self) -> "UnionAllReduce":
        """The same in the tensor's own dtype."""
        return UnionAllReduce(self.block)

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        union = agree(s, self.block, ctx)
        with ctx.phase("encode"):
            values = union.placed.to_dense()
        reduced = Dense(self.dtype).exchange(values, None, ctx)
        assert isinstance(reduced.total, Tensor)
        assert isinstance(reduced.delivered, Tensor)
        with ctx.phase("decode"):
            # Zeros stay zeros on the wire, so nothing is delivered beside what was selected.
            delivered = union.share(reduced.delivered)
            return Reduced(total_of(union.total(reduced.total), union.own.numel, ctx), delivered)
