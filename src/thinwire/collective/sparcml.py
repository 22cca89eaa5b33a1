"""SparCML (Renggli et al., SC 2019): sparse reduce-scatter and allgather, dense where filled in."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from thinwire.collective._owners import delivered_of, dense_of, reduce_by_owner
from thinwire.collective.oktopk.regions import Regions
from thinwire.kernels.merge import merge_all
from thinwire.settings import check_range
from thinwire.types import AnyCodec, Codec, Collective, ExchangeContext, Reduced, Selection, Sparse

_SAMPLE = 4096  # values, to see what a codec makes of one


@dataclass(frozen=True, slots=True)
class SparCML(Collective):
    """Its split-allgather (SSAR and DSAR): P equal index regions, each added up by its own rank.

    Lossless for what was selected; nothing is pruned. With raw codecs a rank sends what it has of
    other regions, at most 2k words, and then (P-1) times its region's sum: 2 words per element
    while sparse, at most n/P words when dense. Equal regions are balanced only if the selected
    indices are spread evenly; Ok-Topk moves the boundaries instead.

    A region's sum travels dense when that takes fewer bytes. `dense_above` is the share of its
    elements above which it does; None compares what the codec makes of both, where the paper's
    threshold δ = N·v/(c+v) knows only raw indices (c bytes) and values (v bytes).
    """

    name = "sparcml"
    sends_selection = True

    dense_above: float | None = None

    def __post_init__(self) -> None:
        if self.dense_above is not None:
            check_range("dense_above", self.dense_above, 0, 1)

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        assert isinstance(codec, Codec)
        own = s.sorted().elements() if isinstance(s, Sparse) else s
        numel = own.numel if isinstance(own, Sparse) else own.numel()
        regions = Regions(tuple(numel * r // ctx.comm.size for r in range(ctx.comm.size + 1)))
        parts = _cut(own, regions)
        sources: Sequence[Tensor] = ()
        if ctx.source is not None:
            sources = [ctx.source[low:high] for low, high in pairwise(regions.edges)]
        totals, lost = reduce_by_owner(parts, _sum, codec, ctx, self._shorter, sources)
        ctx.note("union_count", sum(_size(total) for total in totals))
        with ctx.phase("decode"):
            delivered = delivered_of(own, [regions.join(enumerate(lost))])
            return Reduced(_join(totals, regions, ctx), delivered)

    def goes_dense(
        self, count: float, numel: float, sparse_bytes: float, dense_bytes: float
    ) -> bool:
        """Whether a region's sum, `count` of `numel` elements, travels without indices."""
        if self.dense_above is None:
            return dense_bytes < sparse_bytes
        return count > self.dense_above * numel

    def _shorter(
        self, total: Selection, codec: Codec, ctx: ExchangeContext
    ) -> tuple[Selection, Tensor]:
        """A region's sum in the form that takes fewer bytes, and these."""
        if isinstance(total, Sparse):
            wire = codec.encode(total, ctx)
            dense_bytes = _dense_bytes(total, codec, ctx)
            if not self.goes_dense(total.count, total.numel, wire.numel(), dense_bytes):
                return total, wire
            total = total.to_dense()
        return total, codec.encode(total, ctx)


def _dense_bytes(total: Sparse, codec: Codec, ctx: ExchangeContext) -> float:
    """What the codec would make of the sum as a plain tensor, by a sample of its values."""
    sample = total.values[:_SAMPLE]
    if not sample.numel():
        return float("inf")
    empty = codec.encode(sample[:0], ctx).numel()
    return empty + (codec.encode(sample, ctx).numel() - empty) / sample.numel() * total.numel


def _cut(s: Selection, regions: Regions) -> Sequence[Selection]:
    """The selection's part in each region, counted from the region's start."""
    if isinstance(s, Sparse):
        return regions.cut(s)
    return [s[low:high] for low, high in pairwise(regions.edges)]


def _size(total: Selection) -> int:
    """How many elements travel."""
    return total.count if isinstance(total, Sparse) else total.numel()


def _sum(parts: list[Selection]) -> Selection:
    """The parts added up: sparse if all are."""
    sparse = [part.sorted() for part in parts if isinstance(part, Sparse)]
    if len(sparse) == len(parts):
        return merge_all(sparse)
    total = dense_of(parts[0]).clone()
    for part in parts[1:]:
        total += dense_of(part)
    return total


def _join(totals: list[Selection], regions: Regions, ctx: ExchangeContext) -> Selection:
    """The regions side by side: dense if one of them is."""
    dense = [total for total in totals if not isinstance(total, Sparse)]
    if not dense:
        return regions.join((r, t) for r, t in enumerate(totals) if isinstance(t, Sparse))
    joined = ctx.output(regions.edges[-1], dense[0])
    for (low, high), total in zip(pairwise(regions.edges), totals, strict=True):
        if isinstance(total, Sparse):
            total.add_to(joined[low:high])
        else:
            joined[low:high] = total
    return joined
