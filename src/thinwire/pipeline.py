"""The one way data flows, for one unit and one step. Only this file knows the order.

gradient ─ feedback.before ─ sparsifier.select ─ collective.exchange(codec) ─ mean
         ─ feedback.after ─ update
"""

from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, get_args, runtime_checkable

import torch
from torch import Tensor

from thinwire.codec import Pair
from thinwire.collective import AllGather, Dense
from thinwire.collective.oktopk.xi import xi
from thinwire.errors import ExchangeError, RecipeError
from thinwire.feedback import NoFeedback, Residual
from thinwire.kernels.lazy_sum import LazySum
from thinwire.schedule import WarmUp
from thinwire.settings import target_count
from thinwire.sparsify import Everything, TopK
from thinwire.types import (
    AnyCodec,
    Collective,
    Feedback,
    Reduced,
    Selection,
    Sparse,
    Sparsifier,
    State,
    StepContext,
    TensorSpec,
    accumulator,
)

UnitKind = Literal["tensor", "bucket", "model"]
PipelineState = dict[str, State]
"""The state of each piece: "feedback" (per element), "sparsifier" and "collective" (per unit)."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A recipe: four pieces, what one selection runs over, and which tensors are let past.

    `unit` is what one selection runs over: each tensor, each bucket of about 25 MB, or the whole
    model. Tensors of at most `bypass` elements travel dense, fused into one allreduce: an index
    list would cost more than it saves (DeepReduce, section 6.1).

    `monitor_xi=m` measures Ok-Topk's ξ every m steps, for two dense allreduces each time, and
    shows it in `stats()`; 0 never does.

    `coo` is how gradients that are sparse by themselves travel (`nn.Embedding(sparse=True)`);
    None: by the recipe's own collective. Nothing of them is selected or kept.
    """

    sparsifier: Sparsifier = field(default_factory=TopK)
    codec: AnyCodec = field(default_factory=Pair)
    collective: Collective = field(default_factory=AllGather)
    feedback: Feedback = field(default_factory=Residual)
    warm_up: WarmUp | None = None
    unit: UnitKind = "tensor"
    bypass: int = 1000
    monitor_xi: int = 0
    coo: Collective | None = None

    def __post_init__(self) -> None:
        for role, contract in _ROLES.items():
            piece = getattr(self, role)
            if not isinstance(piece, contract):
                raise RecipeError(f"{role}={piece!r} is not a {contract.__name__}")
        if self.unit not in get_args(UnitKind):
            raise RecipeError(f"unit={self.unit!r} must be one of {', '.join(get_args(UnitKind))}")
        if self.bypass < 0:
            raise RecipeError(f"bypass={self.bypass} must be at least 0 elements")
        if self.monitor_xi < 0:
            raise RecipeError(f"monitor_xi={self.monitor_xi} must be a number of steps, or 0")
        kind = "none" if self.codec is None else self.codec.kind
        if kind != self.collective.takes:
            raise RecipeError(
                f"{self.collective!r} takes a codec of kind {self.collective.takes!r}, "
                f"not {self.codec!r} of kind {kind!r}"
            )
        if self.coo is not None and not isinstance(self.coo, Collective):
            raise RecipeError(f"coo={self.coo!r} is not a Collective")
        if isinstance(self.collective, Particular):
            self.collective.refuse(self.codec)

    @property
    def conserves(self) -> bool:
        """Whether law 1 holds: what is not in the update is in some rank's state."""
        sends_all = isinstance(self.sparsifier, Everything) and self.codec is None
        keeps = getattr(self.collective, "conserves", True)  # gTop-k's own way loses some
        return bool(keeps) and (self.feedback.conserves or sends_all)

    @property
    def is_plain_sum(self) -> bool:
        """Whether a step is the backend's allreduce alone: no state, and NaN reaches everyone."""
        plain = isinstance(self.collective, Dense) and self.collective.dtype == "fp32"
        return (
            plain and isinstance(self.sparsifier, Everything) and type(self.feedback) is NoFeedback
        )

    @property
    def alternatives(self) -> "tuple[Pipeline, ...]":
        """The pipelines that a unit may go through: this one, or those that `Auto` chooses from."""
        return (self,)

    def init(self, spec: TensorSpec) -> PipelineState:
        """The state before the first step."""
        return {
            "feedback": self.feedback.init(spec),
            "sparsifier": self.sparsifier.init(spec),
            "collective": {},
        }

    def no_state(self) -> PipelineState:
        """The state of a rank that leaves the selecting to another."""
        return {"feedback": {}, "sparsifier": {}, "collective": {}}

    def density_at(self, step: int) -> float | None:
        """The density of a step: the warm-up's, then the sparsifier's own.

        Collectives that prune take it from the context, so that both stages mean the same k.
        """
        own: float | None = getattr(self.sparsifier, "density", None)
        return own if self.warm_up is None else self.warm_up.at(step) or own

    def prepare(self, grad: Tensor, state: PipelineState, ctx: StepContext) -> "Prepared":
        """The part before the network: accumulate and select. `grad` is flat.

        In one pass, where the feedback can wait with adding up and the sparsifier can add as it
        looks; the time is then the selection's. On the CPU this pass leaves zeros in `grad` where
        the update will be written: they cost next to nothing while its memory is in the cache,
        and a quarter of the step later on. A device's decoder writes all of its output anyway.
        """
        if isinstance(self.feedback, Accumulates) and isinstance(self.sparsifier, AddsUp):
            clear = ctx.out is grad and grad.device.type == "cpu" and not self._watches(ctx)
            with ctx.phase("select"):
                pending = self.feedback.pending(grad, state["feedback"], clear)
                selection = self.sparsifier.select_from(pending, state["sparsifier"], ctx)
                return Prepared(pending.dense(), selection, clear)
        with ctx.phase("feedback"):
            x = self.feedback.before(grad, state["feedback"])
            x = x.to(accumulator(grad.dtype))
        with ctx.phase("select"):
            return Prepared(x, self.sparsifier.select(x, state["sparsifier"], ctx))

    def complete(
        self, prepared: "Prepared", grad: Tensor, state: PipelineState, ctx: StepContext
    ) -> Tensor:
        """The part on the network and after it; the update ends in the storage of `grad`."""
        seen = (prepared.x.clone(), grad.clone()) if self._watches(ctx) else None
        sends_selection = getattr(self.collective, "sends_selection", False)
        ctx = replace(ctx, cleared=prepared.cleared, dense=prepared.x if sends_selection else None)
        try:
            reduced = self.collective.exchange(prepared.selection, self.codec, ctx)
        except ExchangeError as error:
            name = type(self.collective).__name__
            raise ExchangeError(f"{name} of {ctx.tensor!r}, step {ctx.step}: {error}") from error
        if seen is not None:
            k = target_count(grad.numel(), 1.0, ctx.density)
            measured = xi(*seen, reduced.total, k, ctx.comm)
            state["collective"]["xi"] = torch.tensor(measured, dtype=torch.float64)
        with ctx.phase("feedback"):
            mean = mean_of(reduced, grad.numel(), ctx)
            update = self.feedback.after(prepared.x, reduced, mean, state["feedback"])
            if update.data_ptr() != grad.data_ptr():
                grad.copy_(update)
        return grad

    def step(self, grad: Tensor, state: PipelineState, ctx: StepContext) -> Tensor:
        """One step of one unit: `grad`, flat and contiguous, becomes the update."""
        return self.complete(self.prepare(grad, state, ctx), grad, state, ctx)

    def _watches(self, ctx: StepContext) -> bool:
        """Whether ξ is measured in this step."""
        return self.monitor_xi > 0 and ctx.step % self.monitor_xi == 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """What waits for its turn on the network: where it was selected from, and what.

    `cleared`: the gradient's memory holds zeros by now.
    """

    x: Tensor
    selection: Selection
    cleared: bool = False


@runtime_checkable
class Accumulates(Protocol):
    """A feedback that can hand out its sum before it is added up."""

    def pending(self, grad: Tensor, state: State, clear: bool = False) -> LazySum:
        """What `before` returns, still to be added up; `clear` leaves zeros in `grad`."""


@runtime_checkable
class AddsUp(Protocol):
    """A sparsifier that can add up what it selects from."""

    def select_from(self, x: LazySum, state: State, ctx: StepContext) -> Selection:
        """As `select`, before `x` is added up: the same elements, bit for bit."""


@runtime_checkable
class Particular(Protocol):
    """A collective that not every codec of its kind will do for."""

    def refuse(self, codec: AnyCodec) -> None:
        """`RecipeError` with the reason, for one that will not."""


def mean_of(reduced: Reduced, numel: int, ctx: StepContext) -> Tensor:
    """The dense mean over the ranks. Reads no more of the total than can be non-zero."""
    total, gradients = reduced.total, ctx.gradients or ctx.comm.size
    if isinstance(total, Sparse):
        shares = Sparse(total.indices, total.values / gradients, total.numel, total.ordered)
        return shares.add_to(ctx.output(numel, total.values))
    if gradients == 1:
        return total
    if reduced.support is None or reduced.support.numel() * _SCATTER_COST > numel:
        return total.div_(gradients)
    # Indices may repeat; all repeats write the same quotient.
    total[reduced.support] = total[reduced.support] / gradients
    return total


_SCATTER_COST = 200  # an indexed element costs as much as so many in a row (25.6 M floats, CPU)
_ROLES = {"sparsifier": Sparsifier, "collective": Collective, "feedback": Feedback}
