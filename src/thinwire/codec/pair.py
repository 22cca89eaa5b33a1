"""Any index codec with any value codec."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.codec.abc import IndexCodec, ValueCodec
from thinwire.codec.container import DTYPES, Header, pack, unpack
from thinwire.codec.index.raw import RawIndex
from thinwire.codec.value.raw import RawValue
from thinwire.errors import RecipeError, WireFormatError
from thinwire.types import CodecKind, Selection, Sparse, StepContext


@dataclass(frozen=True, slots=True)
class Pair:
    """A codec of two halves, as DeepReduce (Xu et al., NeurIPS 2021) takes them apart.

    A dense selection has values only; one of rows has an index a row and the values row by row.
    The value codec rounds with a seed of the rank's own, so that errors average out over ranks.
    """

    kind: ClassVar[CodecKind] = "bytes"

    index: IndexCodec = RawIndex()  # noqa: RUF009 - frozen
    value: ValueCodec = RawValue()  # noqa: RUF009 - frozen

    def encode(self, s: Selection, ctx: StepContext) -> Tensor:
        """One wire for the selection; see `container` for its layout."""
        values = s.values if isinstance(s, Sparse) else s
        if values.dtype not in DTYPES.values():
            raise RecipeError(
                f"values must be float32 or float64 to be encoded, not {values.dtype}"
            )
        flat = values.detach().reshape(-1).contiguous()
        if isinstance(s, Sparse):
            if s.count != len(values):
                raise RecipeError(f"{s.count} indices do not fit values of {tuple(values.shape)}")
            index_part = self.index.encode(s.indices, s.rows, s.ordered)
        else:
            index_part = flat.new_empty(0, dtype=torch.uint8)
        value_part = self.value.encode(flat, ctx.stream("value", shared=False))
        return pack(self._header(s), index_part, value_part)

    def decode(self, wire: Tensor, ctx: StepContext) -> Selection:
        """The selection, from bytes that a codec of the same two halves has made."""
        message = unpack(wire)
        h = message.header
        if (h.index_id, h.value_id) != (self.index.id, self.value.id):
            raise WireFormatError(
                f"codec ids must be {self.index.id} ({self.index.name}) and {self.value.id} "
                f"({self.value.name}), found {h.index_id} and {h.value_id}"
            )
        values = self.value.decode(message.value_part, h.count * h.width, h.dtype)
        if h.dense:
            return values
        indices = self.index.decode(message.index_part, h.count, h.rows)
        if h.ordered and not bool((indices[1:] > indices[:-1]).all()):
            raise WireFormatError("flags say ordered, found indices that are not ascending")
        if h.two_dimensional:
            values = values.view(h.count, h.width)
        return Sparse(indices, values, h.numel, h.ordered)

    def _header(self, s: Selection) -> Header:
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
        )
