"""Where and when a piece runs: its way to the network, and the address of its randomness."""

from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor

from thinwire.rng import stream_seed
from thinwire.settings import target_count
from thinwire.types.data import Layout, State

if TYPE_CHECKING:
    from thinwire.kernels.lazy_sum import LazySum


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

    def all_gather_equal(self, tensor: Tensor, out: Tensor | None = None) -> Tensor:
        """Every rank's 1-D tensor as a row, in rank order; all have the same length.

        On a device nobody waits: the caller's stream does. `out`: where the rows go.
        """

    def broadcast(self, tensor: Tensor, source: int) -> Tensor:
        """The tensor of rank `source` on every rank, in place; all have the same length.

        On a device nobody waits: the caller's stream does.
        """

    def all_to_all_equal(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """Row r goes to rank r; returned are the rows that came, in rank order, or in `out`."""

    def start(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> "Waitable":
        """As `exchange`, but return at once; the memory is free again after `wait`."""


class Waitable(Protocol):
    """Messages under way."""

    def wait(self) -> None:
        """Return when all have arrived."""


def _no_clock(phase: str) -> AbstractContextManager[None]:
    return nullcontext()


def _ignore(number: int) -> None: ...


def _unheard(tensor: str, step: int, what: str, value: float) -> None: ...


def _at_once(number: Tensor, then: Callable[[int], None]) -> None:
    then(int(number))


def _written(number: int, device: torch.device) -> Tensor:
    """Not brought there: that would make the host wait."""
    return torch.full((), number, dtype=torch.int64, device=device)


@dataclass(frozen=True, slots=True)
class StepContext:
    """The step of a unit: what a sparsifier may know beside the tensor it selects from."""

    tensor: str
    step: int
    seed: int
    comm: Communicator
    density: float | None = None  # a warm-up schedule's, in place of a piece's own
    shapes: tuple[tuple[int, ...], ...] = ()  # of the unit's tensors, in their order
    layout: Layout | None = None  # None: one selection over the whole unit
    numel: int | None = None  # of the unit: no payload may be of more, nor of another dtype
    dtype: torch.dtype | None = None  # that it is added up in
    steady: bool = False  # nothing may ask the host: sizes are those that every rank knows
    bad: Tensor | None = None  # 0-D int32: set to 1 where a gradient is not finite, and taken for 0
    note_bad: Callable[[int], None] = field(default=_ignore)  # 1: of some rank, as `bad` is of ours
    later: Callable[[Tensor, Callable[[int], None]], None] = field(default=_at_once)
    """Hand over a number (0-D, integer or bool) that the host gets at the end of the step."""
    phase: Callable[[str], AbstractContextManager[None]] = field(default=_no_clock)
    record: Callable[[str, int, str, float], None] = field(default=_unheard)
    keep_number: Callable[[Callable[[int], int], torch.device], Tensor] | None = None
    """Where `number` gets them from in a step that is recorded."""

    def note(self, what: str, value: float) -> None:
        """Tell a number of this step, for the series in `stats()`; no device is waited for."""
        self.record(self.tensor, self.step, what, value)

    def stream(self, purpose: str, shared: bool = True) -> int:
        """The seed for `purpose` here and now; not `shared` means one of its own for each rank."""
        return self._stream_at(self.step, purpose, shared)

    def _stream_at(self, step: int, purpose: str, shared: bool) -> int:
        return stream_seed(
            self.seed, step, self.tensor, purpose, None if shared else self.comm.rank
        )

    def seed_on(self, device: torch.device, purpose: str, shared: bool = True) -> Tensor:
        """As `stream`, on a device: see `number`."""
        return self.number(lambda step: self._stream_at(step, purpose, shared), device)

    def number(self, by_step: Callable[[int], int], device: torch.device) -> Tensor:
        """What `by_step` gives for this step, as 0-D int64 on the device.

        Launches that are recorded and replayed in later steps find those steps' numbers there: what
        a steady step has that differs by step goes this way, not as an argument of a kernel.
        """
        if self.keep_number is not None:
            return self.keep_number(by_step, device)
        return _written(by_step(self.step), device)


@dataclass(frozen=True, slots=True)
class ExchangeContext(StepContext):
    """The exchange of a unit: what collectives and codecs may know beside the selection."""

    out: Tensor | None = None  # flat; a collective may build a dense total here once it has encoded
    cleared: bool = False  # `out` is all zeros already
    memory: State = field(default_factory=dict)  # what a collective remembers of the unit
    source: Tensor | None = None  # flat; what the selection was made from, if that is what travels
    selected_density: float | None = None  # the sparsifier's own, for a collective without one
    gradients: int = 1  # how many the mean is over, for a collective that divides in passing
    settles: bool = True  # whether anyone asks what this rank delivered
    in_place: bool = False  # a dense selection may be left with what was not delivered of it
    lazy: "LazySum | None" = None  # the dense selection, for a collective that adds it up itself
    brought: dict[Hashable, Tensor] = field(default_factory=dict)
    """Numbers that were brought to the device for this exchange, for whoever asks again."""

    @classmethod
    def of(cls, ctx: StepContext, **more: Any) -> Self:
        """The exchange of the step that `ctx` describes."""
        return cls(**{f.name: getattr(ctx, f.name) for f in fields(StepContext)}, **more)

    def pruned_count(self, numel: int, density: float | None) -> int:
        """k of a collective that prunes: by the schedule, its own density, or the sparsifier's."""
        own = density if density is not None else self.selected_density
        return target_count(numel, 1.0 if own is None else own, self.density)

    def output(self, numel: int, like: Tensor, zeroed: bool = True) -> Tensor:
        """A flat buffer for a dense total: the gradient's own storage where it fits."""
        if self.out is not None and self.out.numel() == numel and self.out.dtype == like.dtype:
            return self.out.zero_() if zeroed and not self.cleared else self.out
        return like.new_zeros(numel) if zeroed else like.new_empty(numel)
