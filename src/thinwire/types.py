"""The contracts: what the pieces are, and what passes between them.

    gradient ─ feedback.before ─ sparsifier.select ─ collective.exchange(codec) ─ mean
             ─ feedback.after ─ update

A sparsifier never talks to the network, a codec never sees a rank, a collective never sees a
residual. Pieces are frozen dataclasses of plain settings; what they remember lives in a `State`
that is handed to them.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from thinwire.rng import stream_seed

State = dict[str, Tensor]
"""What a piece remembers of a unit.

A feedback's tensors hold one value an element; a name that begins with "mean_" says that it is
the same on every rank. What sparsifiers and collectives remember belongs to the whole unit.
"""

CodecKind = Literal["bytes", "linear", "none"]
"""bytes: payloads to be gathered; linear: payloads that add; none: the dense tensor itself."""


@dataclass(frozen=True, slots=True)
class Sparse:
    """Some elements of a flat tensor. Indices are int64 and unique; `ordered` means ascending.

    `values` is (k,), or (k, w) where each index names a row of w elements, as the gradient of
    an embedding does; w then divides `numel`, and indices count rows.
    """

    indices: Tensor
    values: Tensor
    numel: int
    ordered: bool = True

    @property
    def count(self) -> int:
        """How many indices there are."""
        return self.indices.numel()

    @property
    def width(self) -> int:
        """How many elements each index stands for."""
        return 1 if self.values.dim() == 1 else self.values.shape[1]

    @property
    def rows(self) -> int:
        """How many indices there could be."""
        return self.numel // self.width if self.width else 0

    def add_to(self, dense: Tensor, alpha: float = 1) -> Tensor:
        """Add `alpha` times these elements to the flat `dense`, in place."""
        target = dense if self.values.dim() == 1 else dense.view(self.rows, self.width)
        target.index_add_(0, self.indices, self.values, alpha=alpha)
        return dense

    def to_dense(self) -> Tensor:
        """The flat tensor these elements come from, zero elsewhere."""
        return self.add_to(self.values.new_zeros(self.numel))

    def elements(self) -> "Sparse":
        """The same elements, one index each."""
        if self.values.dim() == 1:
            return self
        lanes = torch.arange(self.width, device=self.indices.device)
        indices = (self.indices[:, None] * self.width + lanes).reshape(-1)
        return Sparse(indices, self.values.reshape(-1), self.numel, self.ordered)

    def sorted(self) -> "Sparse":
        """The same elements with ascending indices."""
        if self.ordered:
            return self
        indices, order = torch.sort(self.indices)
        return Sparse(indices, self.values[order], self.numel, True)


Selection = Sparse | Tensor
"""What a sparsifier chose. A flat tensor stands for itself: everything, no indices needed."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """What an exchange brought. Over all ranks the `delivered` sum to `total`.

    A dense `total` may come with the `support` outside which it is zero (indices may repeat),
    so that dividing it need not read all of it.
    """

    total: Selection
    delivered: Selection
    support: Tensor | None = None


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A unit's name and form: what one selection runs over, flattened."""

    name: str
    numel: int
    dtype: torch.dtype
    device: torch.device

    @property
    def accumulator(self) -> torch.dtype:
        """The dtype in which its sums and residuals are kept."""
        return accumulator(self.dtype)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Sums and residuals of half-precision gradients are kept in float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Communicator(Protocol):
    """One rank's end of a group: the few exchanges that collectives are made of."""

    rank: int
    size: int

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum `tensor` over all ranks in place; bit-identical everywhere."""

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Every rank's 1-D tensor, in rank order; lengths may differ and may be zero."""

    def all_gather_meta(self, numbers: list[int]) -> list[list[int]]:
        """Every rank's list of integers (all of one length), in rank order, on the host."""

    def exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> None:
        """Send each tensor to its rank while filling each buffer from its rank."""

    def exchange_sized(
        self, outgoing: Mapping[int, Tensor], sources: Collection[int], device: torch.device
    ) -> dict[int, Tensor]:
        """Send each uint8 tensor to its rank; return what the sources send, of any length."""

    def start(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> "Waitable":
        """As `exchange`, but return at once; the memory is free again after `wait`."""


class Waitable(Protocol):
    """Messages under way."""

    def wait(self) -> None:
        """Return when all have arrived."""


def _no_clock(phase: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class StepContext:
    """Where and when a piece runs: the address of its randomness, and its way to the network."""

    tensor: str
    step: int
    seed: int
    comm: Communicator
    density: float | None = None  # a warm-up schedule's, in place of the sparsifier's own
    out: Tensor | None = None  # flat; a collective may build a dense total here once it has encoded
    cleared: bool = False  # `out` is all zeros already
    memory: State = field(default_factory=dict)  # what a collective remembers of the unit
    dense: Tensor | None = (
        None  # flat; what the selection was made from, where that is what travels
    )
    gradients: int | None = None  # how many the sum is of, if not one from each rank of `comm`
    phase: Callable[[str], AbstractContextManager[None]] = field(default=_no_clock)

    def stream(self, purpose: str, shared: bool = True) -> int:
        """The seed for `purpose` here and now; not `shared` means one of its own for each rank."""
        return stream_seed(
            self.seed, self.step, self.tensor, purpose, None if shared else self.comm.rank
        )

    def output(self, numel: int, like: Tensor, zeroed: bool = True) -> Tensor:
        """A flat buffer for a dense total: the gradient's own storage where it fits."""
        if self.out is not None and self.out.numel() == numel and self.out.dtype == like.dtype:
            return self.out.zero_() if zeroed and not self.cleared else self.out
        return like.new_zeros(numel) if zeroed else like.new_empty(numel)


@runtime_checkable
class Sparsifier(Protocol):
    """Chooses which elements travel."""

    def init(self, spec: TensorSpec) -> State:
        """What to remember of a unit before its first step."""

    def select(self, x: Tensor, state: State, ctx: StepContext) -> Selection:
        """The chosen elements of the flat `x`, with values as they are in `x`."""


@runtime_checkable
class Codec(Protocol):
    """Turns a selection into bytes and back. The bytes can be gathered, not added."""

    kind: ClassVar[CodecKind]

    def encode(self, s: Selection, ctx: StepContext) -> Tensor:
        """One uint8 tensor with header and checksum, a multiple of 8 bytes long."""

    def decode(self, wire: Tensor, ctx: StepContext) -> Selection:
        """What `encode` was given, up to the value codec's rounding; else `WireFormatError`."""


@runtime_checkable
class LinearCodec(Protocol):
    """Turns a selection into a payload that allreduce can add.

    The ranks agree first on the elements that anyone may send; a selection's `numel` is their
    number, and its indices count among them.
    """

    kind: ClassVar[CodecKind]

    def project(self, s: Sparse, ctx: StepContext) -> Tensor:
        """A flat payload whose size follows from `s.numel` alone."""

    def recover(self, total: Tensor, numel: int, ctx: StepContext) -> Tensor:
        """All `numel` elements of the sum, from the sum of the payloads."""


AnyCodec = Codec | LinearCodec | None
"""A collective's `takes` says which of these it can work with; pipelines see to it."""


@runtime_checkable
class Collective(Protocol):
    """Adds up what all ranks selected."""

    takes: ClassVar[CodecKind]

    def exchange(self, s: Selection, codec: AnyCodec, ctx: StepContext) -> Reduced:
        """The sum over all ranks, bit-identical on each, and this rank's share of it."""


@runtime_checkable
class Feedback(Protocol):
    """Keeps what was not sent. `conserves` says that nothing is ever lost (law 1)."""

    conserves: ClassVar[bool]

    def init(self, spec: TensorSpec) -> State:
        """What to remember of a unit before its first step."""

    def before(self, grad: Tensor, state: State) -> Tensor:
        """The flat tensor to select from. May be a buffer of `state`."""

    def after(self, x: Tensor, reduced: Reduced, mean: Tensor, state: State) -> Tensor:
        """Settle the state and return the update; `mean` is the dense mean over the ranks."""
