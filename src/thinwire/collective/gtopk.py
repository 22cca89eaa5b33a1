"""gTop-k (Shi et al., ICDCS 2019): the global top-k by a tree."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.collective._owners import delivered_of, lost_on
from thinwire.collective._received import decode_like
from thinwire.collective._tree import hand_down, neighbours
from thinwire.errors import RecipeError
from thinwire.kernels.merge import merge_topk, split_top
from thinwire.settings import check_density
from thinwire.types import AnyCodec, Codec, Collective, ExchangeContext, Reduced, Selection, Sparse


@dataclass(frozen=True, slots=True)
class GTopK(Collective):
    """Partial sums go up a binomial tree to rank 0, pruned to k at each merge; the result comes
    down the same tree (algorithm 3).

    The busiest rank moves at most 4k·⌈log2 P⌉ words with raw codecs, and 72 bytes per message for
    its length, header and padding (section III.D).

    k is density·n, the same on every rank, and not what a rank happened to select; a rank that
    selected more prunes first. While a warm-up schedule runs, its density comes before this one.

    Where we leave the paper:

    - `exact`: whoever prunes a partial sum keeps it, in its own residual. Algorithm 4 (line 10)
      puts back what a rank selected and the result lacks; a value that was pruned at an inner
      merge is then lost if its index survives through another branch: up to 13 % of the norm of
      all selections at P = 4 and 19 % at P = 8, the more, the more alike the ranks' gradients are
      (synthetic, k = 1 % of 10,000). `exact=False` is the paper's way, and does not conserve.
    - Line 5's `step = i` must be 2^(i-1). Any P works: a rank without a partner waits a round.
    - ⊤ is not associative; the tree, and so the result, depends on P alone, never on timing.
    """

    name = "gtopk"
    sends_selection = True
    prunes = True

    density: float | None = None  # of the sum; None: as the sparsifier's
    exact: bool = True

    def __post_init__(self) -> None:
        if self.density is not None:
            check_density(self.density)

    @property
    def conserves(self) -> bool:
        """Whether all that is not in the total stays with some rank."""
        return self.exact

    def without_loss(self) -> "GTopK":
        """The same for a k that is everything: partial sums go up the tree whole."""
        return GTopK(density=1.0)

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        assert isinstance(codec, Codec)
        if not isinstance(s, Sparse):
            raise RecipeError(
                "GTopK prunes sparse selections: choose a sparsifier such as TopK, or the "
                "collective Dense or AllGather for whole tensors"
            )
        own = s.sorted().elements()
        held, lost = _climb(own, ctx.pruned_count(own.numel, self.density), codec, ctx)
        wire = held.indices.new_empty(0, dtype=torch.uint8)
        if ctx.comm.rank == 0:
            with ctx.phase("encode"):
                wire = codec.encode(held, ctx)
        with ctx.phase("exchange"):
            wire = hand_down(wire, ctx)
        with ctx.phase("decode"):
            total = _decode(codec, wire, own, ctx)
            if ctx.comm.rank == 0:
                lost.append(lost_on(wire, held, codec, ctx))
            delivered = delivered_of(own, lost) if self.exact else _common(own, total)
        return Reduced(total, delivered)


def _climb(own: Sparse, k: int, codec: Codec, ctx: ExchangeContext) -> tuple[Sparse, list[Sparse]]:
    """Up the tree: the partial sum that this rank held last, and what it took out of it."""
    with ctx.phase("select"):
        held, pruned = split_top(own, k)
    lost = [pruned]
    parent, children = neighbours(ctx.comm.rank, ctx.comm.size)
    for child in children:
        with ctx.phase("exchange"):
            wire = _receive(child, own.indices.device, ctx)
        with ctx.phase("decode"):
            theirs = _decode(codec, wire, own, ctx)
        with ctx.phase("select"):
            held, pruned = merge_topk(held, theirs, k)
        lost.append(pruned)
    if parent is not None:
        with ctx.phase("encode"):
            wire = codec.encode(held, ctx)
        with ctx.phase("exchange"):
            ctx.comm.exchange_sized({parent: wire}, (), wire.device)
        with ctx.phase("decode"):
            lost.append(lost_on(wire, held, codec, ctx))
    return held, lost


def _receive(source: int, device: torch.device, ctx: ExchangeContext) -> Tensor:
    return ctx.comm.exchange_sized({}, (source,), device)[source]


def _decode(codec: Codec, wire: Tensor, like: Sparse, ctx: ExchangeContext) -> Sparse:
    return decode_like(wire, like, codec, ctx).sorted()


def _common(own: Sparse, total: Sparse) -> Sparse:
    """The paper's bookkeeping: those own elements whose index is in the result."""
    keep = torch.isin(own.indices, total.indices, assume_unique=True)
    return Sparse(own.indices[keep], own.values[keep], own.numel)
