"""The contracts: what the pieces are, and what passes between them.

    gradient ─ feedback.before ─ sparsifier.select ─ collective.exchange(codec) ─ mean
             ─ feedback.after ─ update

A sparsifier never talks to the network, a codec never sees a rank, a collective never sees a
residual. Pieces are frozen dataclasses of plain settings; what they remember lives in a `State`
that is handed to them. All that a piece may have stands here, with a default: `data` is what
passes between pieces, `context` where and when they run, `pieces` the base class of each role,
`halves` the two parts that most codecs are made of.
"""

from thinwire.types.context import Communicator as Communicator
from thinwire.types.context import ExchangeContext as ExchangeContext
from thinwire.types.context import StepContext as StepContext
from thinwire.types.context import Waitable as Waitable
from thinwire.types.data import PADDING as PADDING
from thinwire.types.data import Layout as Layout
from thinwire.types.data import Reduced as Reduced
from thinwire.types.data import Selection as Selection
from thinwire.types.data import Sparse as Sparse
from thinwire.types.data import State as State
from thinwire.types.data import TensorSpec as TensorSpec
from thinwire.types.data import accumulator as accumulator
from thinwire.types.halves import IndexCodec as IndexCodec
from thinwire.types.halves import ValueCodec as ValueCodec
from thinwire.types.pieces import AnyCodec as AnyCodec
from thinwire.types.pieces import Codec as Codec
from thinwire.types.pieces import CodecKind as CodecKind
from thinwire.types.pieces import Collective as Collective
from thinwire.types.pieces import Feedback as Feedback
from thinwire.types.pieces import LinearCodec as LinearCodec
from thinwire.types.pieces import Piece as Piece
from thinwire.types.pieces import Sparsifier as Sparsifier
from thinwire.types.products import Matrices as Matrices
from thinwire.types.products import Products as Products
