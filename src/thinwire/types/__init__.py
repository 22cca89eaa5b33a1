"""The contracts: what the pieces are, and what passes between them.

    gradient ─ feedback.before ─ sparsifier.select ─ collective.exchange(codec) ─ mean
             ─ feedback.after ─ update

A sparsifier never talks to the network, a codec never sees a rank, a collective never sees a
residual. Pieces are frozen dataclasses of plain settings; what they remember lives in a `State`
that is handed to them. All that a piece may have stands here, with a default: `data` is what
passes between pieces, `context` where and when they run, `pieces` the base class of each role,
`halves` the two parts that most codecs are made of.
"""

from thinwire.types.context import Communicator, ExchangeContext, StepContext, Waitable
from thinwire.types.data import (
    Reduced,
    Selection,
    Sparse,
    State,
    TensorSpec,
    accumulator,
)
from thinwire.types.halves import IndexCodec, ValueCodec
from thinwire.types.pieces import (
    AnyCodec,
    Codec,
    CodecKind,
    Collective,
    Feedback,
    LinearCodec,
    Piece,
    Sparsifier,
)

__all__ = [
    "AnyCodec",
    "Codec",
    "CodecKind",
    "Collective",
    "Communicator",
    "ExchangeContext",
    "Feedback",
    "IndexCodec",
    "LinearCodec",
    "Piece",
    "Reduced",
    "Selection",
    "Sparse",
    "Sparsifier",
    "State",
    "StepContext",
    "TensorSpec",
    "ValueCodec",
    "Waitable",
    "accumulator",
]
