"""The one way data flows, for one unit and one step. Only this file knows the order.

gradient ─ feedback.before ─ sparsifier.select ─ collective.exchange(codec) ─ mean
         ─ feedback.after ─ update
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from thinwire.codec import CountSketch, Joint, Pair
from thinwire.collective import AllGather, Dense
from thinwire.collective._run import in_16_bits, mean_of, mean_of_gradients, run_exchange
from thinwire.collective.oktopk.xi import xi
from thinwire.errors import RecipeError
from thinwire.feedback import NoFeedback, Residual
from thinwire.kernels.lazy_sum import LazySum
from thinwire.kernels.max_abs import max_abs
from thinwire.schedule import WarmUp
from thinwire.settings import check_choice, check_integer
from thinwire.sparsify import Everything, TopK
from thinwire.types import (
    AnyCodec,
    Codec,
    CodecKind,
    Collective,
    ExchangeContext,
    Feedback,
    Selection,
    Sparse,
    Sparsifier,
    State,
    StepContext,
    TensorSpec,
    accumulator,
)
from thinwire.types.parts import init_parts

UnitKind = Literal["tensor", "bucket", "model"]
PipelineState = dict[str, State]
"""The state of each piece: "feedback" (per element), "sparsifier" and "collective" (per unit)."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A recipe: four pieces, what one selection runs over, and which tensors are let past.

    `unit` is what one selection runs over: each tensor, each bucket of about 25 MB, or the whole
    model. Tensors of at most `bypass` elements travel dense, fused into one allreduce: an index
    list would cost more than it saves (DeepReduce, section 6.1).

    `monitor_xi=m` measures Ok-Topk's ξ every m steps, by two dense allreduces, for `stats()`.

    `row_collective` is how gradients travel that are sparse by themselves
    (`nn.Embedding(sparse=True)`); None: by the recipe's own collective. Nothing of them is
    selected or kept.
    """

    sparsifier: Sparsifier = field(default_factory=TopK)
    codec: AnyCodec = field(default_factory=Pair)
    collective: Collective = field(default_factory=AllGather)
    feedback: Feedback = field(default_factory=Residual)
    warm_up: WarmUp | None = None
    unit: UnitKind = "tensor"
    bypass: int = 1000
    monitor_xi: int = 0
    row_collective: Collective | None = None

    def __post_init__(self) -> None:
        roles: dict[str, tuple[object, type]] = {
            "sparsifier": (self.sparsifier, Sparsifier),
            "collective": (self.collective, Collective),
            "feedback": (self.feedback, Feedback),
            "warm_up": (self.warm_up or WarmUp(1), WarmUp),
            "row_collective": (self.row_collective or self.collective, Collective),
        }
        for role, (piece, contract) in roles.items():
            if not isinstance(piece, contract):
                raise RecipeError(f"{role}={piece!r} is not a {contract.__name__}")
        check_choice("unit", self.unit, get_args(UnitKind))
        check_integer("bypass", self.bypass, 0)
        check_integer("monitor_xi", self.monitor_xi, 0)
        kind = "none" if self.codec is None else getattr(self.codec, "kind", None)
        if kind != self.collective.takes:
            raise RecipeError(
                f"{self.collective!r} takes a codec of kind {self.collective.takes!r}, "
                f"not {self.codec!r} of kind {kind!r}"
            )
        self.collective.refuse(self.codec)
        if self.collective.prunes and self.collective.density is self.sparsifier.density is None:
            raise RecipeError(
                f"{self.collective!r} prunes to a density, and {self.sparsifier!r} has none: set "
                "the collective's"
            )

    @property
    def conserves(self) -> bool:
        """Whether law 1 holds: what is not in the update is in some rank's state."""
        loses_nothing = self._sends_all and self.codec is None and not self.collective.keeps_back
        return self.collective.conserves and (self.feedback.conserves or loses_nothing)

    @property
    def is_plain_sum(self) -> bool:
        """Whether a step is the backend's allreduce alone: no state, and NaN reaches everyone."""
        plain = isinstance(self.collective, Dense) and self.collective.dtype == "fp32"
        return plain and self._sends_all and type(self.feedback) is NoFeedback

    @property
    def alternatives(self) -> "tuple[Pipeline, ...]":
        """The pipelines that a unit may go through: this one, or those that `Auto` chooses from."""
        return (self,)

    def of_tensor(self, name: str) -> "Pipeline":
        """The recipe that a tensor of this name goes by: this one, but for recipes by names."""
        return self

    def split(self, names: Iterable[str]) -> "list[tuple[Pipeline, list[str]]]":
        """These tensors by their recipes, each in order."""
        all_names = list(names)
        return [(self, all_names)] if all_names else []

    @property
    def joins(self) -> bool:
        """Whether tensors that are selected from apart, and small ones, may share a payload."""
        alike = self.codec is None or (isinstance(self.codec, Codec) and self.codec.joins)
        apart = self.unit == "tensor" and Joint.takes(self.codec)
        return self.sparsifier.joins and self.collective.joins and (alike or apart)

    def is_steady(self, device: torch.device) -> bool:
        """Whether a step on this device goes from gradient to update without asking the host."""
        if device.type != "cuda" or self.monitor_xi:
            return False
        if self._sends_all:
            lazy = isinstance(self.feedback, NoFeedback) or self.feedback.adds_lazily
            return self.collective.whole_is_steady and lazy
        steady = self.collective.is_steady(self.codec) and self.sparsifier.is_steady(device)
        return steady and self.feedback.adds_lazily

    def to_dict(self) -> dict[str, Any]:
        """A dict that `thinwire.recipe` turns into an equal pipeline; JSON and YAML can hold it."""
        written: dict[str, Any] = {
            "sparsifier": self.sparsifier.to_dict(),
            "codec": None if self.codec is None else self.codec.to_dict(),
            "collective": self.collective.to_dict(),
            "feedback": self.feedback.to_dict(),
            "unit": self.unit,
            "bypass": self.bypass,
            "monitor_xi": self.monitor_xi,
        }
        if self.warm_up is not None:
            written["warm_up"] = asdict(self.warm_up)
        if self.row_collective is not None:
            written["row_collective"] = self.row_collective.to_dict()
        return written

    def init(self, spec: TensorSpec) -> PipelineState:
        """The state before the first step."""
        return {
            "feedback": self.feedback.init(spec),
            "sparsifier": init_parts(self.sparsifier, spec),
            "collective": {},
        }

    def no_state(self) -> PipelineState:
        """The state of a rank that leaves the selecting to another."""
        return {"feedback": {}, "sparsifier": {}, "collective": {}}

    def density_at(self, step: int) -> float | None:
        """The warm-up's density for a step; None once each piece has its own again."""
        return None if self.warm_up is None else self.warm_up.at(step)

    def step(self, grad: Tensor, state: PipelineState, ctx: StepContext) -> Tensor:
        """One step of one unit: `grad`, flat and contiguous, becomes the update."""
        return self.complete(self.prepare(grad, state, ctx), grad, state, ctx)

    def prepare(self, grad: Tensor, state: PipelineState, ctx: StepContext) -> "Prepared":
        """The part before the network: accumulate and select. `grad` is flat.

        In one pass, where feedback and sparsifier can. Zeros are left in `grad` where the update
        will be written: they cost next to nothing in a CPU's cache, and no device waits for them.
        """
        whole = self._hands_over(ctx)
        clears = grad.device.type == "cpu" or (ctx.steady and not self._sends_all)
        clear = clears and _holds_update(grad) and not self._watches(ctx) and not whole
        feedback = self.feedback.at(ctx.step)
        kept = in_16_bits(grad) if feedback.wants_mean else None
        with ctx.phase("feedback"):
            x = feedback.lazy_sum(grad, state["feedback"], clear, ctx.bad)
            if x is None:
                dense = feedback.before(grad, state["feedback"])
                x, clear, whole = LazySum(dense.to(accumulator(grad.dtype))), False, False
        if whole:
            return Prepared(x.accumulator, x.accumulator, lazy=x, gradient=kept)
        with ctx.phase("select"):
            return replace(self._select(x, clear, state, ctx), gradient=kept)

    def _select(
        self, x: LazySum, cleared: bool, state: PipelineState, ctx: StepContext
    ) -> "Prepared":
        """Choose, and mark the choice of a rank whose gradient was not finite.

        The mark is a NaN in its first value, which every rank finds in what it gets.
        """
        apart = self.sparsifier.joins and ctx.layout is not None and not ctx.layout.is_plain
        select = self.sparsifier.select_parts if apart else self.sparsifier.select_from
        selection = self.collective.arranged(select(x, state["sparsifier"], ctx), self.codec)
        if ctx.bad is not None and isinstance(selection, Sparse):
            bad = ctx.bad.view(1).view(torch.bool)[:1]  # 0 or 1: its lowest byte says it
            selection.values.view(-1)[:1].masked_fill_(bad, torch.nan)
        elif ctx.bad is not None and not self.feedback.adds_lazily:
            ctx.bad.logical_or_(~max_abs(x.dense()).isfinite())  # nobody has looked yet
        return Prepared(x.dense(), selection, cleared)

    def complete(
        self,
        prepared: "Prepared",
        grad: Tensor,
        state: PipelineState,
        ctx: StepContext,
        gradients: int | None = None,
    ) -> Tensor:
        """The part on the network and after it; the update ends in the storage of `grad`, and is
        the mean over as many `gradients`, where they are not one from each rank.
        """
        gradients = gradients or ctx.comm.size
        watched = (prepared.x.clone(), grad.clone()) if self._watches(ctx) else None
        sends_source = self.collective.sends_selection and not self.sparsifier.scales
        exchange = ExchangeContext.of(
            ctx,
            out=grad if _holds_update(grad) else None,
            cleared=prepared.cleared,
            memory=state["collective"],
            source=prepared.x if sends_source else None,
            selected_density=self.sparsifier.density,
            gradients=gradients,
            settles=not isinstance(self.feedback, NoFeedback),
            in_place=self.feedback.settles_in_place,
            lazy=prepared.lazy,
        )
        codec = Joint.around(self.codec, ctx.layout) if self.joins else self.codec
        reduced = run_exchange(self.collective, prepared.selection, codec, exchange)
        if watched is not None:
            k = exchange.pruned_count(grad.numel(), self.collective.density)
            measured = xi(*watched, reduced.total, k, ctx.comm)
            ctx.note("xi", measured)
            state["collective"]["xi"] = torch.tensor(measured, dtype=torch.float64)
        with ctx.phase("feedback"):
            mean = mean_of(reduced, grad.numel(), gradients, exchange)
            update = self.feedback.after(prepared.x, reduced, mean, state["feedback"])
            if update.data_ptr() != grad.data_ptr():
                grad.copy_(update)
        if prepared.gradient is not None:
            mean = mean_of_gradients(prepared.gradient, gradients, ctx, prepared.x.dtype)
            self.feedback.at(ctx.step).learn(mean, state["feedback"])
        return grad

    def sum_once(self, x: Selection, ctx: StepContext) -> Selection:
        """The sum over the ranks without state or feedback; a dense `x` is sparsified first."""
        if not isinstance(x, Sparse):
            spec = TensorSpec(ctx.tensor, x.numel(), x.dtype, x.device)
            x = self.sparsifier.select(x, self.sparsifier.init(spec), ctx)
        exchange = ExchangeContext.of(ctx, selected_density=self.sparsifier.density)
        return run_exchange(self.collective, x, self.codec, exchange).total

    def sum_rows(self, rows: Sparse, ctx: StepContext) -> Selection:
        """The sum over the ranks of rows that are sparse by themselves: all of them, unpruned."""
        collective, codec = self.row_route()
        return run_exchange(collective, rows, codec, ExchangeContext.of(ctx)).total

    def row_route(self) -> tuple[Collective, AnyCodec]:
        """How rows travel: whole, by `row_collective` or else the recipe's own collective.

        The codec comes along where that returns the very bits; one that would round gives way to
        the raw one, since there is no residual to catch what it loses. A linear codec is what the
        recipe was chosen for, and stays.
        """
        collective = (self.row_collective or self.collective).without_loss()
        codec = self.codec
        fits = codec is not None and codec.kind == collective.takes
        rounds = isinstance(codec, Codec) and not codec.lossless
        return collective, codec if fits and not rounds else _PLAIN[collective.takes]

    @property
    def _sends_all(self) -> bool:
        return isinstance(self.sparsifier, Everything)

    def _hands_over(self, ctx: StepContext) -> bool:
        """Whether the collective adds up itself what feedback hands out, all of which travels."""
        lazy = self.collective.adds_lazily and self.feedback.adds_lazily
        return lazy and self._sends_all and not self._watches(ctx)

    def _watches(self, ctx: StepContext) -> bool:
        """Whether ξ is measured in this step."""
        return self.monitor_xi > 0 and ctx.step % self.monitor_xi == 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """What waits for its turn on the network: where it was selected from, and what.

    `cleared`: the gradient's memory holds zeros by now. `lazy`: both are still to be added up.
    `gradient`: what else is to be averaged.
    """

    x: Tensor
    selection: Selection
    cleared: bool = False
    lazy: LazySum | None = None
    gradient: Tensor | None = None


def _holds_update(grad: Tensor) -> bool:
    """Whether the dense total may be built where the gradient lies."""
    return grad.dtype == accumulator(grad.dtype)


_PLAIN: dict[CodecKind, AnyCodec] = {"bytes": Pair(), "linear": CountSketch(), "none": None}
