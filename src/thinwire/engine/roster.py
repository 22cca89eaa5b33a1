"""The units of a synchroniser: assembled from gradients, dissolved when tensors are regrouped."""

from collections.abc import Mapping, Set
from typing import Any, NamedTuple

import torch
from torch import Tensor

from thinwire.auto import dense_pipeline
from thinwire.auto.by_step import Choosers
from thinwire.comm import GroupCommunicator
from thinwire.engine.fits import Forms, saved_form
from thinwire.engine.given import as_real
from thinwire.errors import StateError
from thinwire.feedback import NoFeedback
from thinwire.kernels.max_abs import max_abs
from thinwire.pipeline import Pipeline
from thinwire.types import TensorSpec
from thinwire.units.grouping import grouped
from thinwire.units.rows import RowUnit
from thinwire.units.scale import rescale, rescaled
from thinwire.units.stats import Cost, total_cost
from thinwire.units.unit import SavedState, Unit


class Before(NamedTuple):
    """Which units there were before a step; each knows for itself what its state was."""

    units: dict[tuple[str, ...], Unit]
    rows: dict[str, RowUnit]
    row_steps: dict[str, int]
    saved: dict[str, SavedState]
    came_from: dict[str, Pipeline]
    waits: set[str]
    past: dict[str, Cost]
    forms: Forms


class Roster:
    """Which units there are now, and what is known of tensors that are in none."""

    def __init__(
        self, pipeline: Pipeline, choosers: Choosers, keeps_state: bool, remembers: bool = True
    ) -> None:
        """`remembers`: copies of the state, so that a step can be undone."""
        self.pipeline, self.choosers, self._keeps_state = pipeline, choosers, keeps_state
        self._remembers, self._torn = remembers, False
        self.units: dict[tuple[str, ...], Unit] = {}
        self.rows: dict[str, RowUnit] = {}
        self._unit_of: dict[str, Unit] = {}
        self._saved: dict[str, SavedState] = {}  # of tensors that are in no unit now
        self._came_from: dict[str, Pipeline] = {}  # of the units that these were in
        self._waits: set[str] = set()  # those of which something waits to be sent
        self._past: dict[str, Cost] = {}  # of tensors while they were in other units
        self.forms: Forms = {}  # of the model's tensors, or of those that came
        self.knows_all = False
        self._before: Before | None = None  # the step that runs
        self._touched: list[Unit] = []  # by that step

    def expect(self, tensors: Mapping[str, Tensor]) -> None:
        """The model's tensors, where a front end knows them: a saved state must be of these."""
        self.forms = {name: saved_form(as_real(t)) for name, t in tensors.items()}
        self.knows_all = True

    def begin(self) -> None:
        """A step begins, which `undo` can take back."""
        steps = {name: unit.step for name, unit in self.rows.items()}
        self._before = Before(
            dict(self.units), dict(self.rows), steps, dict(self._saved), dict(self._came_from),
            set(self._waits), dict(self._past), dict(self.forms),
        )  # fmt: skip
        self._touched = []

    def undo(self) -> None:
        """All that is remembered is as it was before the step, bit for bit."""
        assert self._before is not None, "no step has begun"
        before, touched = self._before, self._touched
        self._before, self._touched = None, []
        self.units, self.rows, self._saved = before.units, before.rows, before.saved
        self._came_from, self._waits, self._past = before.came_from, before.waits, before.past
        self._unit_of = {name: unit for unit in self.units.values() for name in unit.names}
        self.forms = before.forms
        for name, step in before.row_steps.items():
            self.rows[name].step = step
        self._torn |= bool(touched) and not self._remembers
        for unit in touched if self._remembers else ():
            unit.undo()

    def undo_last(self) -> None:
        """The same of a step that is over, unless it was undone."""
        if self._before is not None:
            self.undo()
            self.refuse_torn()

    def refuse_torn(self) -> None:
        """Raise, if a step broke off that could not be taken back."""
        if self._torn:
            raise StateError(
                "a step broke off in the middle, and with undo=False there was no copy of what "
                "was before it: load the last checkpoint"
            )

    def units_for(
        self, grads: Mapping[str, Tensor], whole: bool = False
    ) -> list[tuple[Unit, list[Tensor]]]:
        """The units of these gradients, large ones first, then the small ones fused.

        `whole`: they are one bucket, which is not cut. Where tensors may share a payload, those
        that are selected from apart, and small ones, are one unit. Tensors of different recipes
        never are.
        """
        units = []
        for grouping, names in self.choosers.grouping.split(grads):
            of_recipe = {name: grads[name] for name in names}
            units += self._units_of(of_recipe, grouping, whole)
        return units

    def _units_of(
        self, grads: Mapping[str, Tensor], grouping: Pipeline, whole: bool
    ) -> list[tuple[Unit, list[Tensor]]]:
        past = dense_pipeline(self.pipeline.of_tensor(next(iter(grads))).feedback)
        if grouping.joins:
            return self._joint_units(grads, grouping, past, whole)
        small = {n: g for n, g in grads.items() if g.numel() <= grouping.bypass}
        large = {n: g for n, g in grads.items() if n not in small}
        units = []
        for group in grouped(large, grouping.unit, whole):
            unit = self._unit(group)
            self.choosers.assign(unit)
            units.append((unit, list(group.values())))
        for group in grouped(small, "model"):
            unit = self._unit(group, past)
            self.choosers.assign(unit, past)
            units.append((unit, list(group.values())))
        return units

    def _joint_units(
        self, grads: Mapping[str, Tensor], grouping: Pipeline, past: Pipeline, whole: bool
    ) -> list[tuple[Unit, list[Tensor]]]:
        units = []
        for group in grouped(grads, "model" if grouping.unit == "model" else "bucket", whole):
            small = {name for name, grad in group.items() if grad.numel() <= grouping.bypass}
            pipeline = past if len(small) == len(group) else None
            joint = self._unit(group, pipeline, small)
            self.choosers.assign(joint, pipeline)
            units.append((joint, list(group.values())))
        return units

    def take_bad(self) -> list[str]:
        """The units whose gradients were not finite on a GPU; from now on they are as new."""
        flagged = [u for u in self.units.values() if u.bad is not None and bool(u.bad)]
        for unit in flagged:
            assert unit.bad is not None
            unit.bad.zero_()
        return [unit.spec.name for unit in flagged]

    def row_unit(self, name: str, grad: Tensor) -> RowUnit:
        """The unit of a COO gradient."""
        if name not in self.rows:
            self._learn(name, grad)
            step = int(self._saved.get(name, {}).get("step", 0))
            self.rows[name] = RowUnit.of(
                name, grad, self.pipeline.of_tensor(name), step, self.choosers.clock
            )
        return self.rows[name]

    def kept_of(self, name: str) -> SavedState:
        """All that the feedback keeps of a tensor, flat: what waits, and means of what came."""
        if (unit := self._unit_of.get(name)) is None:
            return _kept(self._saved.get(name, {}))
        where = unit.names.index(name)
        return {f"feedback/{k}": v.split(unit.sizes)[where] for k, v in unit.kept.items()}

    def largest_waiting(self, name: str | None = None) -> float:
        """The largest magnitudes of all that is kept of a tensor, added up; or of any tensor."""
        units = [unit.kept for unit in self.units.values()]
        everyones = [*units, *map(_kept, self._saved.values())]
        return max(map(_largest, everyones if name is None else [self.kept_of(name)]), default=0.0)

    def scale_state(self, factor: float) -> None:
        """Follow a change of the loss scale: what waits is in the old scale's units."""
        for unit in self.units.values():
            rescale(unit.state, unit.pipeline.feedback, factor)
        for name, saved in self._saved.items():
            recipe = self._came_from.get(name) or self.pipeline.of_tensor(name)
            self._saved[name] = rescaled(saved, recipe.feedback, factor)

    def stats(self) -> dict[str, Any]:
        """Costs so far: `total`, and `tensors` by name."""
        costs = self._costs_so_far()
        tensors = {name: cost.row() for name, cost in costs.items()}
        for unit in self.units.values():
            if "xi" in unit.state["collective"]:
                xi = float(unit.state["collective"]["xi"])
                tensors |= {name: tensors[name] | {"xi": xi} for name in unit.names}
            for name, lost in unit.forgets().items():
                tensors[name] = tensors[name] | {"forgotten": lost}
        return {"total": total_cost(costs.values()).row(), "tensors": tensors}

    def dissolved(self) -> dict[str, SavedState]:
        """The state of every tensor; the units stay as they are."""
        self.refuse_torn()
        tensors = {name: dict(saved) for name, saved in self._saved.items()}
        for unit in self.units.values():
            tensors |= unit.dissolve()
        for name, rows in self.rows.items():
            tensors[name] = tensors.get(name, {}) | {"step": torch.tensor(rows.step)}
        return tensors

    def restart(self, saved: dict[str, SavedState], forms: Forms) -> None:
        """Forget all units, and assemble the next ones from these states; no step is taken back."""
        self._torn, self._before, self._touched = False, None, []
        self.forms, self._past = self.forms | forms, self._costs_so_far()
        self.units.clear()
        self.rows.clear()
        self._unit_of.clear()
        self._saved, self._came_from = saved, {}
        self._waits = {name for name, state in saved.items() if "feedback/residual" in state}

    def share_waits(self, comm: GroupCommunicator) -> None:
        """What was loaded by the first rank of a node alone waits for all: they choose alike."""
        votes = comm.all_gather_meta([int(name in self._waits) for name in self._saved])
        columns = zip(self._saved, zip(*votes, strict=True), strict=True)
        self._waits = {name for name, waits in columns if any(waits)}

    def _unit(
        self,
        grads: Mapping[str, Tensor],
        pipeline: Pipeline | None = None,
        past: Set[str] = frozenset(),
    ) -> Unit:
        key = tuple(grads)
        unit = self.units.get(key)
        if unit is not None and unit.fits(grads, past):
            if self._remembers:
                unit.remember()
            self._touched.append(unit)
            return unit
        for name, grad in grads.items():
            self._learn(name, grad)
        for old in [k for k in self.units if not set(k).isdisjoint(key)]:
            self._dissolve(self.units.pop(old))
        waits = not self._waits.isdisjoint(key)
        pipeline = self.choosers.first_pipeline(key, pipeline, waits)
        saved = {n: self._fitting(n, grads[n], pipeline) for n in key if n in self._saved}
        clock = self.choosers.clock
        unit = Unit.assemble(grads, pipeline, saved, self._keeps_state, clock, past)
        for name in key:
            self._saved.pop(name, None)
        self.units[key] = unit
        self._unit_of |= dict.fromkeys(key, unit)
        return unit

    def _learn(self, name: str, grad: Tensor) -> None:
        """Note a tensor's form; one that was loaded must have kept it."""
        if self.knows_all:
            return
        form, known = saved_form(grad), self.forms.get(name)
        if name in self._saved and known not in (None, form):
            raise StateError(f"{name!r} was saved as {known} and is {form} here")
        self.forms[name] = form

    def step_of(self, name: str) -> int:
        """How many steps a tensor has behind it."""
        unit = self.rows.get(name) or self._unit_of.get(name)
        return unit.step if unit is not None else int(self._saved.get(name, {}).get("step", 0))

    def _dissolve(self, unit: Unit) -> None:
        self._saved |= unit.dissolve()
        for name in unit.names:
            del self._unit_of[name]
        self._past |= self._with_past(unit.costs())
        self._came_from |= dict.fromkeys(unit.names, unit.pipeline)
        names = set(unit.names)
        keeps = not isinstance(unit.pipeline.feedback, NoFeedback)
        self._waits = self._waits | names if keeps else self._waits - names

    def _fitting(self, name: str, grad: Tensor, pipeline: Pipeline) -> SavedState:
        """A tensor's state for a unit of this pipeline, where that is not the one it was in.

        As by `Unit.switch`: what waits goes along, thresholds and the like start anew.
        """
        saved, before = self._saved[name], self._came_from.pop(name, pipeline)
        if before == pipeline or not self._keeps_state:
            return saved
        saved = {k: v for k, v in saved.items() if k.startswith("feedback/") or k == "step"}
        spec = TensorSpec(name, grad.numel(), grad.dtype, grad.device, (tuple(grad.shape),))
        nothing = pipeline.feedback.init(spec)
        return {f"feedback/{key}": value for key, value in nothing.items()} | saved

    def _costs_so_far(self) -> dict[str, Cost]:
        """Of all tensors, in all their units."""
        costs = dict(self._past)
        for unit in self.units.values():
            costs |= self._with_past(unit.costs())
        return costs | self._with_past({name: unit.cost() for name, unit in self.rows.items()})

    def _with_past(self, costs: Mapping[str, Cost]) -> dict[str, Cost]:
        """What tensors cost in a unit and in those before it."""
        return {name: self._past.get(name, Cost()) + cost for name, cost in costs.items()}


def _kept(saved: SavedState) -> SavedState:
    """The feedback's part of a saved state."""
    return {key: value for key, value in saved.items() if key.startswith("feedback/")}


def _largest(kept: Mapping[str, Tensor]) -> float:
    """Of what adds up to what is sent; squares do not."""
    sums = (value for key, value in kept.items() if not key.endswith("_square"))
    return sum(float(max_abs(value)) for value in sums if value.numel())
