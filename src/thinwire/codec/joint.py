"""Several tensors in one wire, each encoded as if it were alone.

A scale, quantiles, a polynomial or a Bloom filter are of one tensor: others cannot share the part
that they are in. They can share the container, whose flag "joint" then says what its parts are:

    index part    for each tensor with a selection of its own, in order, three int64: its count, the
                  bytes of its index part, and those of its value part
    value part    the values of all tensors that are let past, as they are; then of each other
                  tensor its index part and its value part; all zero-padded to multiples of 8

Which tensors there are both sides know, by their layout. The header's count is that of all
elements.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import TypeGuard

import torch
from torch import Tensor

from thinwire.codec.container import Header, Message, address_of, aligned, check_shape, pack
from thinwire.codec.pair import Pair, open_message
from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.errors import WireFormatError
from thinwire.types import AnyCodec, Codec, ExchangeContext, Layout, Selection, Sparse

ROW_BYTES = 3 * 8  # of the table, for each tensor


@dataclass(frozen=True, slots=True)
class Joint(Codec):
    """What `pair` makes of each tensor of `ctx.layout`, with random numbers and all, in one wire.

    Tensors that are let past travel as they are.
    """

    pair: Pair

    @staticmethod
    def takes(codec: AnyCodec) -> TypeGuard[Pair]:
        """Whether it is of use: not where tensors share parts, nor where no size may be asked."""
        return isinstance(codec, Pair) and not codec.joins and not codec.is_steady

    @staticmethod
    def around(codec: AnyCodec, layout: Layout | None) -> AnyCodec:
        """The codec for a unit of this layout: as it is, unless it needs one payload for each."""
        shared = layout is not None and not layout.is_plain
        return Joint(codec) if shared and Joint.takes(codec) else codec

    @property
    def lossless(self) -> bool:
        return self.pair.lossless

    @property
    def keeps_indices(self) -> bool:
        return self.pair.keeps_indices

    def encode(self, s: Selection, ctx: ExchangeContext) -> Tensor:
        """One wire for the selections of all tensors."""
        layout = _layout_of(ctx)
        s = s.trimmed().sorted() if isinstance(s, Sparse) else s
        whole: list[Tensor] = []
        table, parts = [], []
        for (name, start, end, past), own in zip(layout.parts(), _split(s, layout), strict=True):
            if past:
                whole.append(own.values if isinstance(own, Sparse) else own)
                continue
            source = None if ctx.source is None else ctx.source[start:end]
            alone = replace(ctx, tensor=name, numel=end - start, source=source, layout=None)
            index_part, value_part, sent = self.pair.parts_of(own, alone)
            table.append((_count_of(sent), index_part.numel(), value_part.numel()))
            parts += [index_part, value_part]
        values = torch.cat(whole) if whole else _values_of(s)[:0]
        count = values.numel() + sum(row[0] for row in table)
        header = replace(self.pair.header_of(s), count=count, joint=True)
        rows = torch.tensor(table, dtype=torch.int64).view(-1).view(torch.uint8)
        body = _laid_out([as_bytes(values), *parts])
        return pack(header, address_of(ctx.tensor, ctx.step), rows.to(body.device), body)

    def decode(self, wire: Tensor, ctx: ExchangeContext) -> Selection:
        """The selections of all tensors as one."""
        layout = _layout_of(ctx)
        message = self.pair.opened(wire, ctx)
        h = message.header
        whole, others = _take_apart(message, layout)
        indices, values = [], []
        for name, start, end, past in layout.parts():
            if past:
                values.append(next(whole))
                if not h.dense:
                    indices.append(torch.arange(start, end, device=wire.device))
                continue
            try:
                own = self._open(h, end - start, *next(others))
            except WireFormatError as error:
                raise WireFormatError(f"{name!r} in a joint payload: {error}") from error
            values.append(_values_of(own))
            if isinstance(own, Sparse):
                indices.append(own.indices + start)
        if h.dense:
            return torch.cat(values)
        return Sparse(torch.cat(indices), torch.cat(values), h.numel)

    def _open(
        self, h: Header, numel: int, count: int, index_part: Tensor, value_part: Tensor
    ) -> Selection:
        """One tensor's selection, by a header that says what was found of it."""
        own = replace(h, numel=numel, count=count, joint=False)
        check_shape(own)
        if h.dense:
            expect_bytes(index_part, 0, "the indices of a dense selection")
        message = Message(own, None, index_part, value_part)
        return open_message(message, self.pair.index, self.pair.value)


def table_of(message: Message) -> list[tuple[int, int, int]]:
    """Of each tensor with a selection of its own the count, the index bytes and the value bytes."""
    if message.index_part.numel() % ROW_BYTES:
        raise WireFormatError(f"a table of {message.index_part.numel()} bytes has no whole rows")
    words = message.index_part.cpu().view(torch.int64).tolist()
    return list(zip(words[::3], words[1::3], words[2::3], strict=True))


def _take_apart(
    message: Message, layout: Layout
) -> tuple[Iterator[Tensor], Iterator[tuple[int, Tensor, Tensor]]]:
    """The values of each tensor let past, and of each other its count and parts.

    All sizes are compared with what there is before anything is made of them.
    """
    h, body = message.header, message.value_part
    if not h.joint or h.numel != sum(layout.sizes):
        raise WireFormatError(
            f"a joint payload of {len(layout.names)} tensors with {sum(layout.sizes)} elements was "
            f"due, found {h.numel} elements, joint={h.joint}"
        )
    table = table_of(message)
    past = [end - start for _, start, end, past in layout.parts() if past]
    lengths = [sum(past) * h.dtype.itemsize, *chain.from_iterable(row[1:] for row in table)]
    sound = len(table) == len(layout.names) - len(past) and min(chain(*table, lengths)) >= 0
    if not sound or sum(map(aligned, lengths)) != body.numel():
        raise WireFormatError(f"parts of {lengths} bytes do not fill {body.numel()}, or are others")
    if h.count != sum(past) + sum(row[0] for row in table):
        raise WireFormatError(f"the tensors have not as many elements as {h.count}, the header's")
    slots = body.split([aligned(length) for length in lengths])
    whole, *parts = (slot[:length] for slot, length in zip(slots, lengths, strict=True))
    _refuse_padding(body, lengths)
    counts = (row[0] for row in table)
    return iter(whole.view(h.dtype).split(past)), zip(counts, parts[::2], parts[1::2], strict=True)


def _refuse_padding(body: Tensor, lengths: list[int]) -> None:
    """Refuse padding that is not zero; all of it is looked at in one go."""
    starts = accumulate(map(aligned, lengths), initial=0)
    gaps = (
        range(start + length, start + aligned(length))
        for start, length in zip(starts, lengths, strict=False)
    )
    places = torch.tensor(list(chain.from_iterable(gaps)), dtype=torch.int64, device=body.device)
    if bool(body[places].any()):
        raise WireFormatError("padding in a joint payload must be zero")


def _laid_out(parts: list[Tensor]) -> Tensor:
    """The parts one after the other, each from a multiple of 8 on."""
    zeros = parts[0].new_zeros(7)
    padding = [zeros[:length] for length in range(8)]
    return torch.cat([piece for part in parts for piece in (part, padding[-part.numel() % 8])])


def _split(s: Selection, layout: Layout) -> Iterator[Selection]:
    """Each tensor's own part of an ordered selection."""
    if not isinstance(s, Sparse):
        yield from s.split(list(layout.sizes))
        return
    ends = torch.tensor(list(accumulate(layout.sizes)), device=s.indices.device)
    upto = torch.searchsorted(s.indices, ends).tolist()
    first = 0
    for (_, start, end, _), last in zip(layout.parts(), upto, strict=True):
        yield Sparse(s.indices[first:last] - start, s.values[first:last], end - start)
        first = last


def _layout_of(ctx: ExchangeContext) -> Layout:
    assert ctx.layout is not None, "a joint payload is of a unit with a layout"
    return ctx.layout


def _values_of(s: Selection) -> Tensor:
    return s.values if isinstance(s, Sparse) else s


def _count_of(s: Selection) -> int:
    return s.count if isinstance(s, Sparse) else s.numel()
