"""The choosers of one synchroniser, and how its steps reach them."""

import time
from collections.abc import Iterable
from typing import Any

import torch

from thinwire.auto import FLUSH, Auto
from thinwire.auto.chooser import Choice, Chooser
from thinwire.auto.rules import DENSE
from thinwire.auto.selective import CostChooser
from thinwire.auto.trials import TrialChooser
from thinwire.comm import GroupCommunicator, Nodes
from thinwire.feedback import Residual
from thinwire.pipeline import Pipeline
from thinwire.units.clock import StepClock
from thinwire.units.unit import Unit

BACKWARD = ("a backward pass",)
"""The kind of step in which gradients come one after the other; others name their tensors."""


class Choosers:
    """One chooser for each kind of step: DDP has one kind, `average` one for each tensor.

    For a pipeline that is not an `Auto` there is nothing to choose. Steps of all kinds are timed by
    `clock`.
    """

    def __init__(self, pipeline: Pipeline, comm: GroupCommunicator, nodes: Nodes | None) -> None:
        self.pipeline, self.comm, self.nodes = pipeline, comm, nodes
        self.by_kind: dict[tuple[str, ...], Chooser] = {}
        self.clock = StepClock()
        for group in (comm, None if nodes is None else nodes.between):
            if group is not None:
                group.timed = self.clock.meeting
        self._now: Chooser | None = None
        self._loaded: Choice = {}
        self._timed: Chooser | None = None  # whose step began at `_began`
        self._began: Any = None
        self._since = 0.0  # by the host's clock
        self._device = torch.device("cpu")

    @property
    def settled(self) -> bool:
        """Whether nothing is being tried now, or ever will be."""
        if not isinstance(self.pipeline, Auto):
            return True
        return bool(self.by_kind) and all(c.settled for c in self.by_kind.values())

    def is_steady(self, device: torch.device) -> bool:
        """Whether the backward pass that runs, or comes, asks the host nothing on this device."""
        if not isinstance(self.pipeline, Auto):
            return self.pipeline.is_steady(device)
        chooser = self._now or self._of(self.pipeline, BACKWARD)
        return all(recipe.is_steady(device) for recipe in chooser.possible)

    @property
    def grouping(self) -> Pipeline:
        """Whose `unit` and `bypass` say which tensors go together in this step."""
        return self.pipeline if self._now is None else self._now.grouping

    def begin_step(self, kind: tuple[str, ...]) -> None:
        """Steps of a kind have the same tensors."""
        self.clock.begin(kind)
        if not isinstance(self.pipeline, Auto):
            return
        chooser = self._of(self.pipeline, kind)
        began, self._since = self._mark(), time.perf_counter()
        if self._timed is not None:
            self._timed.time_step(self._began, began)
        self._now, self._timed, self._began = chooser, None, began

    def end_step(self) -> None:
        """The step is over, and no error ended it."""
        self.clock.end()
        if self._now is not None:
            self._device = self._now.device if self._now.units else self._device
            self._now.end_step(time.perf_counter() - self._since)
            self._now, self._timed = None, self._now

    def first_pipeline(
        self, names: tuple[str, ...], past: Pipeline | None, waits: bool
    ) -> Pipeline:
        """What a new unit begins with; `past` if it is not compressed."""
        if self._now is None:
            own = self.pipeline.of_tensor(names[0])  # the tensors of a unit share a recipe
            flushes = past is not None and isinstance(own.feedback, Residual) and waits
            return FLUSH if flushes else past or own
        return self._now.first_pipeline(names, past, waits)

    def assign(self, unit: Unit, past: Pipeline | None = None) -> None:
        """Give a unit the pipeline of this step; `past` if it is not compressed."""
        if self._now is not None:
            self._now.assign(unit, past)

    def decided(self) -> dict[str, Any] | None:
        """The first decision, as plain numbers; None where there is none."""
        decisions = (chooser.decision for chooser in self.by_kind.values() if chooser.decision)
        return next((decision.row() for decision in decisions), None)

    def choice(self, units: Iterable[tuple[str, ...]]) -> Choice:
        """What was decided, for each tensor; those that are sent dense are left out."""
        chosen: Choice = {}
        for names in units:
            of_unit = (
                c for kind, c in self.by_kind.items() if kind == BACKWARD or names[0] in kind
            )
            chooser = next(of_unit, None)
            if chooser is not None:
                chosen |= dict.fromkeys(names, chooser.choice(names))
        return {name: label for name, label in chosen.items() if label != DENSE}

    def load(self, choice: Choice) -> None:
        """Go on with what a checkpoint says."""
        self.by_kind, self._loaded, self._timed = {}, dict(choice), None

    def _of(self, auto: Auto, kind: tuple[str, ...]) -> Chooser:
        if kind not in self.by_kind:
            self.by_kind[kind] = self._chooser(auto, kind)
        return self.by_kind[kind]

    def _chooser(self, auto: Auto, kind: tuple[str, ...]) -> Chooser:
        if not auto.trial:
            return CostChooser(auto, self.comm, self.nodes, self._loaded)
        known = {name: label for name, label in self._loaded.items() if name in kind}
        loaded = self._loaded if kind == BACKWARD else known
        return TrialChooser(auto, self.comm, self.nodes, loaded, overlap=kind == BACKWARD)

    def _mark(self) -> Any:
        """Now, for the device that the steps before worked on: without waiting for it."""
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event
