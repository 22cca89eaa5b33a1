"""A unit: the tensors one selection runs over, their state, and the way in and out of it.

State is kept by parameter name whatever the unit: DDP rebuilds its buckets after the first
step, and a checkpoint may be loaded into other units. So a unit can be dissolved into its
tensors' states and another be assembled from them.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from thinwire import foreach
from thinwire.comm import Traffic
from thinwire.errors import RecipeError
from thinwire.pipeline import Pipeline, PipelineState
from thinwire.types import Communicator, Layout, Selection, State, StepContext, TensorSpec
from thinwire.units.clock import StepClock
from thinwire.units.stats import Cost, Meter

SavedState = dict[str, Tensor]
"""One tensor's part of a unit's state, by keys such as "feedback/residual"."""


class Before(NamedTuple):
    """What a unit was before a step, but for its state."""

    pipeline: Pipeline
    spec: TensorSpec
    step: int
    whole: bool


@dataclass(slots=True)
class Unit:
    """Several tensors as one flat one, and what its pipeline remembers of it."""

    names: tuple[str, ...]
    spec: TensorSpec
    pipeline: Pipeline
    meter: Meter
    state: PipelineState
    step: int = 0
    keeps_state: bool = True
    whole: bool = False  # whether the last step by this pipeline counts, and for all of its tensors
    bad: Tensor | None = None  # 0-D int32, on a GPU: 1 once a gradient was not finite
    launched: Hashable | None = None  # by the last step: what a recording would be good for
    recording: Any = None  # of a step's launches on a GPU: the engine's
    _flat: Tensor | None = None  # kept: a fresh allocation costs three in-place passes
    _before: "Before | None" = field(default=None, repr=False)
    _kept: PipelineState = field(default_factory=dict, repr=False)  # a copy of the state
    _left_out: bool = False  # some tensors sit the step out

    @classmethod
    def assemble(
        cls,
        grads: Mapping[str, Tensor],
        pipeline: Pipeline,
        saved: Mapping[str, SavedState],
        keeps_state: bool = True,
        clock: StepClock | None = None,
        past: Set[str] = frozenset(),
    ) -> "Unit":
        """A unit of these tensors that goes on from their saved states where there are any.

        Those `past` the selection travel whole.
        """
        first = next(iter(grads.values()))
        shapes = tuple(tuple(g.shape) for g in grads.values())
        sizes = [prod(shape) for shape in shapes]
        label = next(iter(grads)) if len(grads) == 1 else f"{next(iter(grads))}+{len(grads) - 1}"
        layout = Layout(tuple(grads), tuple(sizes), tuple(name in past for name in grads))
        spec = TensorSpec(
            label, sum(sizes), first.dtype, first.device, shapes, _selecting(layout, pipeline)
        )
        unit = cls(
            names=tuple(grads),
            spec=spec,
            pipeline=pipeline,
            meter=Meter(sizes, spec.dtype, spec.device, clock),
            state=pipeline.init(spec) if keeps_state else pipeline.no_state(),
            keeps_state=keeps_state,
        )
        if first.is_cuda:
            unit.bad = torch.zeros((), dtype=torch.int32, device=first.device)
        unit._absorb(saved)
        return unit

    @property
    def sizes(self) -> list[int]:
        """How many elements each tensor has."""
        return [prod(shape) for shape in self.spec.shapes]

    @property
    def kept(self) -> State:
        """What the feedback keeps, element by element."""
        return self.state["feedback"]

    def fits(self, grads: Mapping[str, Tensor], past: Set[str] = frozenset()) -> bool:
        """Whether these gradients are of the unit's tensors, in every respect."""
        assert self.spec.layout is not None
        if any((n in past) != p for n, p in zip(self.names, self.spec.layout.past, strict=True)):
            return False
        kinds = {(grad.dtype, grad.device) for grad in grads.values()}
        shapes = tuple(tuple(grad.shape) for grad in grads.values())
        return kinds == {(self.spec.dtype, self.spec.device)} and shapes == self.spec.shapes

    def dissolve(self) -> dict[str, SavedState]:
        """Each tensor's state. What belongs to the whole unit goes to each of its tensors."""
        saved: dict[str, SavedState] = {
            name: {"step": torch.tensor(self.step)} for name in self.names
        }
        for piece in ("sparsifier", "collective"):
            for key, value in self.state[piece].items():
                for name, own in self._by_tensor(piece, key, value):
                    saved[name][f"{piece}/{key}"] = own.clone()
        for key, value in self.state["feedback"].items():
            for name, part in zip(self.names, value.split(self.sizes), strict=True):
                saved[name][f"feedback/{key}"] = part.clone()
        return saved

    def _by_tensor(self, piece: str, key: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Whose a value of a piece's state is: one tensor's, row by row theirs, or everyone's."""
        layout, owner = self.spec.layout, key.partition("/")[2]
        if owner:
            yield owner, value
            return
        if piece != "sparsifier" or layout is None or not layout.each:
            yield from ((name, value) for name in self.names)
            return
        selecting = [name for name, _, _, past in layout.parts() if not past]
        yield from zip(selecting, value, strict=True)

    def _absorb(self, saved: Mapping[str, SavedState]) -> None:
        # Of a tensor that travelled whole nothing waits, and none of it was saved.
        waits = {n for n, own in saved.items() if any(k.startswith("feedback/") for k in own)}
        for key, value in self.state["feedback"].items():
            for name, part in zip(self.names, value.split(self.sizes), strict=True):
                if name in waits:
                    part.copy_(_fitting(saved[name], f"feedback/{key}", name, part))
        known = [saved[name] for name in self.names if name in saved]
        if not known:
            return
        self.step = int(known[0]["step"])
        for key, value in self.state["sparsifier"].items():
            path = f"sparsifier/{key}"
            for name, own in self._by_tensor("sparsifier", key, value):
                if path in saved.get(name, {}):
                    own.copy_(saved[name][path])
        for one in known:
            for path, value in one.items():
                piece, _, key = path.partition("/")
                if piece == "collective" and (one is known[0] or "/" in key):
                    self.state[piece][key] = value.clone()

    def switch(self, pipeline: Pipeline) -> None:
        """Go on by another pipeline. What waits goes along; thresholds and the like start anew.

        State that the new feedback has no place for is dropped: see `auto.FLUSH`.
        """
        waiting = self.state["feedback"]
        self.meter.restart()
        self.pipeline, self.whole = pipeline, False
        assert self.spec.layout is not None
        self.spec = replace(self.spec, layout=_selecting(self.spec.layout, pipeline))
        self.state = pipeline.init(self.spec) if self.keeps_state else pipeline.no_state()
        feedback = self.state["feedback"]
        feedback |= {key: value for key, value in waiting.items() if key in feedback}

    def flatten(self, grads: Sequence[Tensor]) -> Tensor:
        """The gradients as one flat tensor: a view where they lie in a row, else a copy."""
        row = foreach.in_a_row(grads)
        if row is not None:
            self._flat = None
            return row
        if self._flat is None:
            self._flat = torch.empty(
                self.spec.numel, dtype=self.spec.dtype, device=self.spec.device
            )
        foreach.copy_(self._shaped(self._flat), list(grads))
        return self._flat

    def unflatten(self, flat: Tensor, grads: Sequence[Tensor]) -> None:
        """Write the update back into the gradients."""
        if flat.data_ptr() == grads[0].data_ptr():
            return  # it is a view of them
        foreach.copy_(list(grads), self._shaped(flat))

    def _shaped(self, flat: Tensor) -> list[Tensor]:
        parts = zip(flat.split(self.sizes), self.spec.shapes, strict=True)
        return [part.view(shape) for part, shape in parts]

    def context(self, seed: int, comm: Communicator, **more: Any) -> StepContext:
        """The address of this step."""
        return StepContext(
            tensor=self.spec.name,
            step=self.step,
            seed=seed,
            comm=comm,
            density=self.pipeline.density_at(self.step),
            shapes=self.spec.shapes,
            layout=self.spec.layout,
            numel=self.spec.numel,
            dtype=self.spec.accumulator,
            phase=self.meter.phase,
            **more,
        )

    def remember(self) -> None:
        """Copy the state, so that `undo` can take the step back that begins now.

        A copy: a sum is not what it was before, once something was added and taken away again.
        """
        self._before = Before(self.pipeline, self.spec, self.step, self.whole)
        copies, originals = [], []
        for piece, state in self.state.items():
            before = self._kept.get(piece, {})
            self._kept[piece] = kept = {}
            for key, value in state.items():
                copy = before.get(key)
                if copy is None or copy.shape != value.shape:
                    copy = torch.empty_like(value)
                kept[key] = copy
                copies.append(copy)
                originals.append(value)
        if copies:
            foreach.copy_(copies, originals)  # many at a time, where they are on a GPU

    def undo(self) -> None:
        """Go back to what `remember` saw. The buffers change places; nothing is copied."""
        assert self._before is not None, "nothing was remembered"
        before, self._before = self._before, None
        self.pipeline, self.spec, self.step, self.whole = before
        self.state, self._kept = self._kept, self.state
        if self.bad is not None:
            self.bad.zero_()

    @contextmanager
    def frozen(self, names: Set[str]) -> Iterator[None]:
        """Let these tensors sit the step out: they offer zeros and their state stays as it is."""
        self._left_out = not names.isdisjoint(self.names)
        parts = [
            part
            for value in self.state["feedback"].values()
            for name, part in zip(self.names, value.split(self.sizes), strict=True)
            if name in names
        ]
        kept = [part.clone() for part in parts]
        for part in parts:
            part.zero_()
        try:
            yield
        finally:
            self._left_out = False
            for part, before in zip(parts, kept, strict=True):
                part.copy_(before)

    def count(self, selection: Selection | None, moved: Traffic, ranks: int) -> None:
        """Enter a finished step into the statistics, and move on to the next."""
        self.meter.count(selection, moved, ranks)
        self.step += 1
        self.whole = not self._left_out

    def forgets(self) -> dict[str, float]:
        """What a step forgets of each tensor at present, as the sum of magnitudes; where it does.

        Waits for the device.
        """
        lost = self.pipeline.feedback.forgets(self.state["feedback"]) if self.keeps_state else None
        if lost is None:
            return {}
        parts = zip(self.names, lost.split(self.sizes), strict=True)
        return {name: float(part.sum()) for name, part in parts}

    def costs(self) -> dict[str, Cost]:
        """What each tensor has cost since the unit was assembled."""
        return dict(zip(self.names, self.meter.costs(), strict=True))


def _selecting(layout: Layout, pipeline: Pipeline) -> Layout:
    """A layout as this pipeline selects: over each tensor, or over all."""
    several = sum(not past for past in layout.past) > 1
    return replace(layout, each=several and pipeline.unit == "tensor")


def _fitting(saved: SavedState, key: str, name: str, like: Tensor) -> Tensor:
    if key not in saved:
        raise RecipeError(
            f"the saved state of {name!r} has no {key!r} (it has {', '.join(sorted(saved))}): "
            "it was saved by a recipe with another feedback"
        )
    if saved[key].numel() != like.numel():
        raise RecipeError(
            f"the saved {key!r} of {name!r} has {saved[key].numel()} elements, "
            f"the tensor has {like.numel()}"
        )
    return saved[key]
