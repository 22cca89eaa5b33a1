"""Any index codec with any value codec."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from thinwire.codec.container import (
    DTYPES,
    Address,
    Blank,
    Header,
    Message,
    address_of,
    address_on,
    pack_at,
    unpack,
    unpack_rows,
    value_rows,
)
from thinwire.codec.index.raw import RawIndex
from thinwire.codec.value.raw import RawValue
from thinwire.errors import RecipeError, WireFormatError
from thinwire.types import (
    PADDING,
    Codec,
    ExchangeContext,
    IndexCodec,
    Selection,
    Sparse,
    State,
    ValueCodec,
)


@dataclass(frozen=True, slots=True)
class Pair(Codec):
    """A codec of two halves, as DeepReduce (Xu et al., NeurIPS 2021) takes them apart.

    A dense selection has values only; one of rows has an index per row and the values row by row.
    The value codec rounds with a seed of the rank's own, so that errors average out over ranks.

    Where receivers find other indices than were selected (a Bloom filter), the values of those
    that they find are sent: in ascending order, read from the tensor that was selected from where
    that is at hand (in every collective but those that refuse such codecs), and otherwise zero
    outside of the selection.
    """

    index: IndexCodec = RawIndex()  # noqa: RUF009 - frozen
    value: ValueCodec = RawValue()  # noqa: RUF009 - frozen

    @property
    def lossless(self) -> bool:
        """Whether both halves are."""
        return self.index.lossless and self.value.lossless

    @property
    def keeps_indices(self) -> bool:
        """Whether the index codec is lossless."""
        return self.index.lossless

    @property
    def joins(self) -> bool:
        """Whether each value is rounded by itself, whatever tensor it is of."""
        return self.index.lossless and self.value.joins

    @property
    def is_steady(self) -> bool:
        """Whether both halves are."""
        return self.index.steady and self.value.steady

    def replays(self, state: State, step: int) -> Hashable | None:
        return None if self.index.draws or self.value.draws else ()

    def takes_any_order(self, rows: int) -> bool:
        """Whether the index codec does; rounded padding would have to be found."""
        return self.value.lossless and self.index.takes_any_order(rows)

    def to_dict(self) -> dict[str, Any]:
        """Both halves."""
        return {"index": self.index.to_dict(), "value": self.value.to_dict()}

    def encode(self, s: Selection, ctx: ExchangeContext) -> Tensor:
        """One wire for the selection; see `container` for its layout."""
        _refuse_unfit(s)
        if isinstance(s, Sparse) and self.is_steady and (ctx.steady or s.padded):
            s = s if self.takes_any_order(s.rows) else s.sorted()
            if s.values.dim() == 1:
                return self._encode_rows(s.indices[None], s.values[None], s, ctx)[0]
        index_part, value_part, sent = self.parts_of(s, ctx)
        address = address_on(ctx, value_part.device)
        return pack_at(address, self.header_of(sent), index_part, value_part)

    def parts_of(self, s: Selection, ctx: ExchangeContext) -> tuple[Tensor, Tensor, Selection]:
        """The index part, the value part, and the selection that a receiver takes them for."""
        if isinstance(s, Sparse):
            index_part, s = self._encode_indices(s.trimmed(), ctx)
            values = s.values
        else:
            index_part, values = s.new_empty(0, dtype=torch.uint8), s
        flat = values.detach().reshape(-1).contiguous()
        return index_part, self.value.encode(flat, ctx.stream("value", shared=False)), s

    def decode(self, wire: Tensor, ctx: ExchangeContext) -> Selection:
        """The selection, from bytes that a codec of the same two halves has made."""
        message = self.opened(wire, ctx)
        return open_message(message, self.index, self.value)

    def opened(self, wire: Tensor, ctx: ExchangeContext) -> Message:
        """The parts of a wire by this codec, of this step and tensor."""
        message = unpack(wire)
        h = message.header
        if (h.index_id, h.value_id) != (self.index.id, self.value.id):
            raise WireFormatError(
                f"codec ids must be {self.index.id} ({self.index.name}) and {self.value.id} "
                f"({self.value.name}), found {h.index_id} and {h.value_id}"
            )
        _refuse_elsewhere(message.address, ctx)
        if ctx.numel is not None and h.numel - h.width >= max(1, ctx.numel):
            raise WireFormatError(
                f"numel must be at most {ctx.numel}, that of {ctx.tensor!r}; found {h.numel}"
            )
        if ctx.dtype not in (None, h.dtype):
            raise WireFormatError(f"dtype must be {ctx.dtype}, found {h.dtype}")
        return message

    def encode_rows(
        self,
        indices: Tensor,
        values: Tensor,
        numel: int,
        ctx: ExchangeContext,
        ordered: bool = True,
    ) -> Tensor:
        """A wire in each row."""
        like = Sparse(indices[0], values[0], numel, ordered, padded=True)
        return self._encode_rows(indices, values, like, ctx)

    def _encode_rows(
        self, indices: Tensor, values: Tensor, like: Sparse, ctx: ExchangeContext
    ) -> Tensor:
        """Wires of selections of the kind of `like`, whose parts are written where they belong."""
        blank = Blank.of(len(values), *self._part_sizes(like), values.device)
        self.index.write_rows(indices, like.rows, blank.index_parts)
        seed = ctx.stream("value", shared=False)
        self.value.write_rows(values.detach(), seed, blank.value_parts)
        return blank.sealed(self.header_of(like), address_on(ctx, values.device))

    def decode_rows(
        self, wires: Tensor, like: Sparse, ctx: ExchangeContext
    ) -> tuple[Tensor, Tensor]:
        """Indices and values of the wires, one in each row."""
        index_bytes, value_bytes = self._part_sizes(like)
        address = address_on(ctx, wires.device)
        parts = unpack_rows(wires, self.header_of(like), address, index_bytes, value_bytes)
        index_parts, value_parts, sealed = parts
        open_rows = self.index.decode_rows if like.ordered else self.index.decode_any_order
        indices, sound = open_rows(index_parts, like.count, like.rows)
        values = self.value.decode(value_parts, like.count, like.values.dtype)
        if like.padded and not (self.value.lossless or self.value.keeps_zeros):
            values = values.masked_fill(indices == PADDING, 0)  # it may have been rounded
        # A number, as the host is told: of a bool it would be made in a launch of its own.
        all_sound = torch.empty((), dtype=torch.int64, device=wires.device)
        ctx.later(torch.logical_and(sealed, sound, out=all_sound), _refuse_unsound)
        return indices, values

    def sent_values(self, wires: Tensor, like: Sparse) -> Tensor:
        """The values of the wires, one in each row; nothing is checked."""
        values = value_rows(wires, *self._part_sizes(like))
        return self.value.decode(values, like.count, like.values.dtype)

    def _part_sizes(self, like: Sparse) -> tuple[int, int]:
        """Bytes of the two parts of a selection of this size."""
        return self.index.size(like.count, like.rows), self.value.size(
            like.count, like.values.dtype
        )

    def _encode_indices(self, s: Sparse, ctx: ExchangeContext) -> tuple[Tensor, Sparse]:
        """The index part, and the elements that a receiver takes it for."""
        if self.index.lossless:
            return self.index.encode(s.indices, s.rows, s.ordered), s
        s = s.sorted()
        seed = ctx.stream("index", shared=False)
        part = self.index.encode_seeded(s.indices, s.rows, ordered=True, seed=seed)
        support = self.index.support(part, s.count, s.rows)
        return part, s if support is None else _at(support, s, ctx.source)

    def header_of(self, s: Selection) -> Header:
        """The header of a selection's wire."""
        if not isinstance(s, Sparse):
            numel = s.numel()
            return Header(self.index.id, self.value.id, s.dtype, numel, numel, dense=True)
        return Header(
            index_id=self.index.id,
            value_id=self.value.id,
            dtype=s.values.dtype,
            numel=s.numel,
            count=s.count,
            width=s.width,
            ordered=s.ordered,
            two_dimensional=s.values.dim() == 2,
            padded=s.padded,
        )


def open_message(message: Message, index: IndexCodec, value: ValueCodec) -> Selection:
    """The selection in a sound wire, by the codecs that it names."""
    h = message.header
    if h.joint:
        raise WireFormatError("flags say joint: who reads it must know the tensors that share it")
    # Values first: few bytes can say where many indices are, but not what their values are.
    values = value.decode(message.value_part, h.count * h.width, h.dtype)
    if h.dense:
        return values
    if h.padded:
        return _open_padded(message, index, values)
    indices = index.decode(message.index_part, h.count, h.rows)
    if h.ordered and not bool((indices[1:] > indices[:-1]).all()):
        raise WireFormatError("flags say ordered, found indices that are not ascending")
    if not h.ordered and indices.unique().numel() != h.count:
        raise WireFormatError("indices must be distinct, found some twice")
    if h.two_dimensional:
        values = values.view(h.count, h.width)
    return Sparse(indices, values, h.numel, h.ordered)


def _refuse_unfit(s: Selection) -> None:
    values = s.values if isinstance(s, Sparse) else s
    if values.dtype not in DTYPES.values():
        raise RecipeError(f"values must be float32 or float64 to be encoded, not {values.dtype}")
    if isinstance(s, Sparse) and s.count != len(values):
        raise RecipeError(f"{s.count} indices do not fit values of {tuple(values.shape)}")


def _open_padded(message: Message, index: IndexCodec, values: Tensor) -> Sparse:
    h = message.header
    if not index.steady:
        raise WireFormatError(f"flags say padded, which {index!r} never makes")
    if not h.ordered and not index.takes_any_order(h.rows):
        raise WireFormatError(f"{index!r} brings padding behind ordered indices alone")
    open_rows = index.decode_rows if h.ordered else index.decode_any_order
    indices, sound = open_rows(message.index_part[None], h.count, h.rows)
    _refuse_unsound(bool(sound))
    elements = Sparse(indices[0], values, h.numel, h.ordered, padded=True).trimmed()
    if not h.ordered and elements.indices.unique().numel() != elements.count:
        raise WireFormatError("indices must be distinct, found some twice")
    return elements


def _refuse_unsound(sound: int) -> None:
    if not sound:
        raise WireFormatError(
            "some rank's payload is damaged, of another step or tensor, or not what is due"
        )


def _refuse_elsewhere(found: Address | None, ctx: ExchangeContext) -> None:
    """A sound payload may still be an earlier step's, or another tensor's."""
    due = address_of(ctx.tensor, ctx.step)
    if found == due:
        return
    if found is None:
        raise WireFormatError("version 1 says neither step nor tensor, and cannot be exchanged")
    if found.tensor != due.tensor:
        raise WireFormatError(
            f"tensor must be {due.tensor:#010x}, that is {ctx.tensor!r}; found {found.tensor:#010x}"
        )
    raise WireFormatError(f"step must be {due.step}, found {found.step}, of {ctx.tensor!r}")


def _at(support: Tensor, s: Sparse, dense: Tensor | None) -> Sparse:
    """The elements at ascending `support`: of the ordered `s`, else of `dense`, else zero.

    Of a partial sum too: what a rank has at an index that nobody selected is its own alone.
    """
    place = torch.searchsorted(s.indices, support).clamp_(max=max(0, s.count - 1))
    values = s.values[place]
    other = s.indices[place] != support
    if dense is None:
        values[other] = 0
    else:
        source = dense if s.values.dim() == 1 else dense.view(s.rows, s.width)
        values[other] = source[support[other]]
    return Sparse(support, values, s.numel)
