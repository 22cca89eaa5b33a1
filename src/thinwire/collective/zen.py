"""Zen (Wang et al., OSDI 2025): owners by a hash, and a hash bitmap on the way back."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.collective._owners import collect_by_owner, delivered_of, lost_on
from thinwire.collective._received import form_of
from thinwire.errors import RecipeError, WireFormatError
from thinwire.kernels.bitmap import positions, set_bits, words_for
from thinwire.kernels.merge import merge_all, nonzero
from thinwire.rng import hash_to_range
from thinwire.types import AnyCodec, Codec, Collective, ExchangeContext, Reduced, Selection, Sparse

WORD = 8  # bytes of a bitmap's word


@dataclass(frozen=True, slots=True)
class Zen(Collective):
    """Each element has an owner, which adds it up and returns it to all if anyone had it.

    Owners are balanced whatever was selected where, without moving anything: a hash deals out the
    indices. A rank sends its elements to their owners once, and its own sums to all, without
    indices: a bit for each of its n/P elements says which of them there are (the hash bitmap: n/32
    words of all owners together, whatever P). Lossless for what was selected.

    Where we leave the paper: of each stripe of P neighbouring indices every owner has one, by a
    rotation that is hashed from the stripe's number. So an owner has n/P elements and not about as
    many, an element's place in the bitmap is its stripe, and nobody keeps lists of whose is whose;
    neighbours, which gradients select together, are never one owner's. The hash is another in each
    step. Values take the recipe's codec both ways, indices on the way there.
    """

    name = "zen"

    def refuse(self, codec: AnyCodec) -> None:
        """The last stripe may be short, and an index that was found beyond it is nobody's."""
        if isinstance(codec, Codec) and not codec.keeps_indices:
            raise RecipeError(
                f"{codec!r} may return other indices than it was given, also such as no owner in "
                "Zen has. Use a lossless index codec"
            )

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        assert isinstance(codec, Codec)
        with ctx.phase("encode"):
            own = _elements(s)
            stripes = Stripes(own.numel, ctx.comm.size, ctx.stream("owner"))
            parts = stripes.deal(own)
        total, wires = collect_by_owner(parts, _sum, codec, ctx)
        assert isinstance(total, Sparse)
        with ctx.phase("encode"):
            values = codec.encode(total.values, ctx)
            wire = torch.cat((set_bits(total.indices, stripes.rows).view(torch.uint8), values))
        with ctx.phase("exchange"):
            gathered = ctx.comm.all_gather(wire)
        with ctx.phase("decode"):
            totals = [_open(other, stripes.rows, codec, ctx) for other in gathered]
            me = ctx.comm.rank
            rounded = Sparse(total.indices, total.values - totals[me].values, stripes.rows)
            lost = [
                nonzero(rounded) if r == me else lost_on(wires[r], part, codec, ctx)
                for r, part in enumerate(parts)
            ]
            delivered = delivered_of(own, [stripes.collect(lost)])
            return Reduced(stripes.collect(totals), delivered)


@dataclass(frozen=True, slots=True)
class Stripes:
    """Who owns which of `numel` indices: of every `ranks` neighbours one is each rank's."""

    numel: int
    ranks: int
    seed: int

    @property
    def rows(self) -> int:
        """How many stripes there are; the last may be short."""
        return -(-self.numel // self.ranks)

    def owners(self, indices: Tensor) -> Tensor:
        """The rank that each index belongs to."""
        return (indices + self._turn(indices // self.ranks)) % self.ranks

    def deal(self, s: Sparse) -> list[Sparse]:
        """What each rank owns of the ordered `s`, by its stripes."""
        owner = self.owners(s.indices)
        mine = [(owner == rank).nonzero().flatten() for rank in range(self.ranks)]
        return [Sparse(s.indices[at] // self.ranks, s.values[at], self.rows) for at in mine]

    def collect(self, parts: Sequence[Sparse]) -> Sparse:
        """The parts of all ranks under their own indices, in order: what `deal` undoes."""
        indices = torch.cat(
            [
                part.indices * self.ranks + (rank - self._turn(part.indices)) % self.ranks
                for rank, part in enumerate(parts)
            ]
        )
        values = torch.cat([part.values for part in parts])
        return Sparse(indices, values, self.numel, ordered=False).sorted()

    def _turn(self, stripes: Tensor) -> Tensor:
        return hash_to_range(stripes, self.ranks, self.seed)


def back_bytes(rows: int) -> int:
    """Bytes of an owner's bitmap."""
    return WORD * words_for(rows)


def _elements(s: Selection) -> Sparse:
    if isinstance(s, Sparse):
        return s.sorted().elements()
    indices = s.nonzero().flatten()
    return Sparse(indices, s[indices], s.numel())


def _sum(parts: list[Selection]) -> Selection:
    return merge_all([part.sorted() for part in parts if isinstance(part, Sparse)])


def _open(wire: Tensor, rows: int, codec: Codec, ctx: ExchangeContext) -> Sparse:
    """An owner's sums, from their bitmap and their values."""
    end = back_bytes(rows)
    values = codec.decode(wire[end:], ctx)
    if isinstance(values, Sparse):
        raise WireFormatError(f"values without indices were due, found {form_of(values)}")
    # A copy begins at a multiple of 8, where its words can be read.
    indices, found = positions(wire[:end].clone().view(torch.int64), values.numel())
    if int(found) != values.numel() or bool((indices[-1:] >= rows).any()):
        raise WireFormatError(
            f"a bitmap of {rows} bits must have {values.numel()} set, found {int(found)}"
        )
    return Sparse(indices, values, rows)
