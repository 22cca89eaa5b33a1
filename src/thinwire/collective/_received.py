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


def form_of(s: Selection) -> str:
    """What the ranks must agree on."""
    if not isinstance(s, Sparse):
        return f"a dense selection of {s.numel()} elements, {s.dtype}"
    width = f"rows of {s.width}" if s.values.dim() == 2 else "elements"
    return f"a selection of {width} out of {s.numel}, {s.values.dtype}"


def refuse_other_size(found: Selection, numel: int) -> None:
    """For a part that may have changed its kind on the way."""
    if numel_of(found) != numel:
        raise WireFormatError(f"a part of {numel} elements was due, found {numel_of(found)}")


def numel_of(s: Selection) -> int:
    """Elements of the flat tensor that was selected from."""
    return s.numel if isinstance(s, Sparse) else s.numel()
