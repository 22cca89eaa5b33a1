"""The base class of each role. Subclass it, and what you do not write has its default.

A piece is a frozen dataclass of plain settings with a `name`, by which recipes call it. It is
found by that name once it is registered: `thinwire.register`.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.types.context import ExchangeContext, StepContext
from thinwire.types.data import Reduced, Selection, Sparse, State, TensorSpec
from thinwire.types.parts import part_by_part

if TYPE_CHECKING:
    from thinwire.kernels.lazy_sum import LazySum

CodecKind = Literal["bytes", "linear", "none"]
"""bytes: payloads to be gathered; linear: payloads that add; none: the dense tensor itself."""


class Piece(ABC):  # noqa: B024 - the roles have abstract methods
    """What all roles share: a name, and settings that can be written down."""

    __slots__ = ()

    name: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """The name and the settings, as a recipe in JSON or YAML holds them."""
        if not self.name:
            raise RecipeError(f'{self!r} has no name: give its class one, `name = "…"`')
        return {"name": self.name} | asdict(self)  # type: ignore[call-overload, no-any-return]

    def replays(self, state: State, step: int) -> Hashable | None:
        """What this piece launches in a steady step depends on, beside sizes; None: on the step.

        Steps in which it is the same are recorded once and replayed. So what is launched must read
        from `ctx.number` what differs by step, and keep the state in the tensors that it is in.
        """
        return None


class Sparsifier(Piece):
    """Chooses which elements travel."""

    __slots__ = ()

    @property
    def density(self) -> float | None:
        """The share of the elements that it aims at; None where it has no aim."""
        return None

    joins: ClassVar[bool] = False  # `select_parts` works: it chooses single elements, in order

    @property
    def shared(self) -> bool:
        """Whether all ranks choose the same elements without talking."""
        return False

    @property
    def scales(self) -> bool:
        """Whether chosen values are not those of the tensor."""
        return False

    def is_steady(self, device: torch.device) -> bool:
        """Whether every rank chooses as many as every other, padding counted, and none asks the
        host how many."""
        return False

    def init(self, spec: TensorSpec) -> State:
        """What to remember of a unit before its first step."""
        return {}

    @abstractmethod
    def select(self, x: Tensor, state: State, ctx: StepContext) -> Selection:
        """The chosen elements of the flat `x`, with values as they are in `x`."""

    def select_from(self, x: "LazySum", state: State, ctx: StepContext) -> Selection:
        """As `select`, before `x` is added up: the same elements, bit for bit.

        Worth overriding where adding and selecting can be one pass over memory.
        """
        return self.select(x.dense(), state, ctx)

    def select_parts(self, x: "LazySum", state: State, ctx: StepContext) -> Selection:
        """As `select_from`, where the unit's tensors are selected from apart, or let past.

        With a selection for each tensor the state has a row for each. Worth overriding where many
        tensors can be one launch.
        """
        return part_by_part(self, x.dense(), state, ctx)


class Codec(Piece):
    """Turns a selection into bytes and back. The bytes can be gathered, not added."""

    __slots__ = ()

    kind: ClassVar[CodecKind] = "bytes"

    @property
    def joins(self) -> bool:
        """Whether it treats every element alike, so that tensors may be encoded as one."""
        return False

    @property
    def is_steady(self) -> bool:
        """Whether a payload's size follows from the selection's, and `decode_rows` works."""
        return False

    def takes_any_order(self, rows: int) -> bool:
        """Whether `encode_rows` and `decode_rows` take elements and padding in any order."""
        return False

    @property
    def lossless(self) -> bool:
        """Whether the very bits come back."""
        return False

    @property
    def keeps_indices(self) -> bool:
        """Whether the very indices come back, no fewer and no others."""
        return True

    @abstractmethod
    def encode(self, s: Selection, ctx: ExchangeContext) -> Tensor:
        """One uint8 tensor with header and checksum, a multiple of 8 bytes long."""

    @abstractmethod
    def decode(self, wire: Tensor, ctx: ExchangeContext) -> Selection:
        """What `encode` was given, up to the value codec's rounding; else `WireFormatError`."""

    def encode_rows(
        self,
        indices: Tensor,
        values: Tensor,
        numel: int,
        ctx: ExchangeContext,
        ordered: bool = True,
    ) -> Tensor:
        """A wire in each row, of elements of which some may be padding: of ordered ones the last.

        Those that are not `ordered` only where it `takes_any_order`.
        """
        raise NotImplementedError(f"{self!r} is not steady")

    def sent_values(self, wires: Tensor, like: Sparse) -> Tensor:
        """The values alone, as `decode_rows` returns them, of wires that this rank has made."""
        raise NotImplementedError(f"{self!r} is not steady")

    def decode_rows(
        self, wires: Tensor, like: Sparse, ctx: ExchangeContext
    ) -> tuple[Tensor, Tensor]:
        """Indices and values, a row for each of the `wires`: of selections of the size of `like`.

        Asks the host nothing: it hears of a wire that is not sound by `ctx.later`.
        """
        raise NotImplementedError(f"{self!r} is not steady")


class LinearCodec(Piece):
    """Turns a selection into a payload that allreduce can add.

    The ranks agree first on the elements that anyone may send; a selection's `numel` is their
    number, and its indices count among them.
    """

    __slots__ = ()

    kind: ClassVar[CodecKind] = "linear"

    @abstractmethod
    def project(self, s: Sparse, ctx: ExchangeContext) -> Tensor:
        """A flat payload whose size follows from `s.numel` alone."""

    @abstractmethod
    def recover(self, total: Tensor, numel: int, ctx: ExchangeContext) -> Tensor:
        """All `numel` elements of the sum, from the sum of the payloads."""


AnyCodec = Codec | LinearCodec | None
"""A collective's `takes` says which of these it can work with; pipelines see to it."""


class Collective(Piece):
    """Adds up what all ranks selected."""

    __slots__ = ()

    takes: ClassVar[CodecKind] = "bytes"
    sends_selection: ClassVar[bool] = False  # as it was made, at first: asks for `ctx.source`
    prunes: ClassVar[bool] = False  # to a density, its own or the sparsifier's
    joins: ClassVar[bool] = False  # tensors may share an exchange: each element is on its own
    keeps_back: ClassVar[bool] = False  # of whole tensors too, for a feedback to keep
    whole_is_steady: ClassVar[bool] = False  # an exchange of whole tensors asks the host nothing
    adds_lazily: ClassVar[bool] = False  # it adds up a dense selection itself: `ctx.lazy`
    in_one_round: ClassVar[bool] = False  # others are selected from beside a step's only exchange
    in_two_rounds: ClassVar[bool] = False  # two units' exchanges fill each other's idle moments

    @property
    def density(self) -> float | None:
        """The share of the elements that the sum is pruned to; None: as many as are selected."""
        return None

    @property
    def conserves(self) -> bool:
        """Whether all that is not in the total stays with some rank (law 1)."""
        return True

    def is_steady(self, codec: AnyCodec) -> bool:
        """Whether an exchange of selections of a size that all know asks the host nothing."""
        return False

    def arranged(self, s: Selection, codec: AnyCodec) -> Selection:
        """The selection in an order that `exchange` takes: of a padded one ascending."""
        return s.sorted() if isinstance(s, Sparse) and s.padded else s

    def refuse(self, codec: AnyCodec) -> None:
        """`RecipeError` with the reason for a codec of the right kind that will not do."""

    def without_loss(self) -> "Collective":
        """The same collective without pruning or rounding, for rows that have no residual."""
        return self

    @abstractmethod
    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        """The sum over all ranks, bit-identical on each, and this rank's share of it."""


class Feedback(Piece):
    """Keeps what was not sent."""

    __slots__ = ()

    is_step: ClassVar[bool] = False  # the update is an optimiser's step, not a gradient
    squares: ClassVar[bool] = False  # gradients, and keeps that
    settles_in_place: ClassVar[bool] = False  # keeps the very tensor that it hands out, no more

    @property
    def conserves(self) -> bool:
        """Whether nothing is ever lost (law 1)."""
        return False

    def at(self, step: int) -> "Feedback":
        """The same with the settings of one step, counted from 0, where these change by time."""
        return self

    def forgets(self, state: State) -> Tensor | None:
        """How much of each element a step forgets at present, on average; None where nothing is."""
        return None

    @property
    def wants_mean(self) -> bool:
        """Whether a step must also bring the mean of the gradients themselves, for `learn`.

        That is a dense allreduce in 16 bits more.
        """
        return False

    def learn(self, mean: Tensor, state: State) -> None:
        """The mean of all ranks' gradients, where it was wanted, after the rest of the step."""

    def rescale(self, state: State, factor: float) -> None:
        """Follow a change of the loss scale: what waits is in the old scale's units."""
        for value in state.values():
            value.mul_(factor)

    @property
    def adds_lazily(self) -> bool:
        """Whether `lazy_sum` adds all of the gradient, and so looks whether it is finite."""
        return False

    def init(self, spec: TensorSpec) -> State:
        """What to remember of a unit before its first step."""
        return {}

    @abstractmethod
    def before(self, grad: Tensor, state: State) -> Tensor:
        """The flat tensor to select from. May be a buffer of `state`."""

    def lazy_sum(
        self, grad: Tensor, state: State, clear: bool, bad: Tensor | None = None
    ) -> "LazySum | None":
        """What `before` returns, still to be added up; `clear` leaves zeros in `grad`.

        None where there is nothing to add, or no way to wait with it. `bad` is as in `StepContext`.
        """
        return None

    @abstractmethod
    def after(self, x: Tensor, reduced: Reduced, mean: Tensor, state: State) -> Tensor:
        """Settle the state and return the update; `mean` is the dense mean over the ranks."""
