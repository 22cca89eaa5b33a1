"""What came from another rank is looked at before it is added to anything."""

from typing import TypeVar

from torch import Tensor

from thinwire.errors import WireFormatError
from thinwire.types import Codec, ExchangeContext, Selection, Sparse

S = TypeVar("S", bound=Tensor | Sparse)


def decode_like(wire: Tensor, like: S, codec: Codec, ctx: ExchangeContext) -> S:
    """The selection in a payload, which must be of the kind and of as many elements as ours."""
    found = codec.decode(wire, ctx)
    if not isinstance(found, type(like)) or form_of(found) != form_of(like):
        raise WireFormatError(f"{form_of(like)} was due, found {form_of(found)}")
    return found


def decode_total(
    wire: Tensor, part: Selection, codec: Codec, ctx: ExchangeContext, or_dense: bool
) -> Selection:
    """A sum of parts like ours: in their form, or dense where an owner may find that shorter."""
    found, due = codec.decode(wire, ctx), form_of(part)
    if form_of(found) == due:
        return found
    if or_dense and isinstance(part, Sparse):
        dense = f"a dense selection of {part.numel} elements, {part.values.dtype}"
        if form_of(found) == dense:
            return found
        due = f"{due} or {dense}"
    raise WireFormatError(f"{due} was due, found {form_of(found)}")


def form_of(s: Selection) -> str:
    """What the ranks must agree on."""
    if not isinstance(s, Sparse):
        return f"a dense selection of {s.numel()} elements, {s.dtype}"
    width = f"rows of {s.width}" if s.values.dim() == 2 else "elements"
    return f"a selection of {width} out of {s.numel}, {s.values.dtype}"
