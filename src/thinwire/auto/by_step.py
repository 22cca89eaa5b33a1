"""The choosers of one synchroniser, and how its steps reach them."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from thinwire.auto import Auto
from thinwire.auto.trials import Choice, Chooser
from thinwire.comm import GroupCommunicator, Nodes
from thinwire.pipeline import Pipeline
from thinwire.units.clock import StepClock
from thinwire.units.unit import SavedState, Unit


class Choosers:
    """One chooser for each kind of step: DDP has one kind, `average` one for each tensor.

    For a pipeline that is not an `Auto` there is nothing to choose.
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
        self._ended = time.perf_counter()

    @property
    def settled(self) -> bool:
        """Whether nothing is being tried now, or ever will be."""
        if not isinstance(self.pipeline, Auto):
            return True
        return bool(self.by_kind) and all(c.settled for c in self.by_kind.values())

    def begin_step(self, kind: tuple[str, ...]) -> None:
        """Steps of a kind have the same tensors."""
        self.clock.begin(kind)
        if not isinstance(self.pipeline, Auto):
            return
        if kind not in self.by_kind:
            self.by_kind[kind] = Chooser(self.pipeline, self.comm, self.nodes, self._loaded)
        self._now = self.by_kind[kind]

    def end_step(self) -> None:
        """The step is over, and no error ended it."""
        self.clock.end()
        if self._now is not None:
            self._now.end_step(time.perf_counter() - self._ended)
            self._now, self._ended = None, time.perf_counter()

    def first_pipeline(self, names: tuple[str, ...], saved: Mapping[str, SavedState]) -> Pipeline:
        """What a new unit begins with."""
        return self.pipeline if self._now is None else self._now.first_pipeline(names, saved)

    def assign(self, unit: Unit) -> None:
        """Give a unit the pipeline of this step."""
        if self._now is not None:
            self._now.assign(unit)

    def decided(self) -> dict[str, Any] | None:
        """The first decision, as plain numbers; None where there is none."""
        decisions = (chooser.decision for chooser in self.by_kind.values() if chooser.decision)
        return next((decision.row() for decision in decisions), None)

    def choice(self, units: Iterable[tuple[str, ...]]) -> Choice:
        """What was decided, for each tensor; those that are sent dense are left out."""
        first: Choice = {}  # by the first tensor of each unit
        for chooser in self.by_kind.values():
            first |= chooser.decision.choice if chooser.decision else self._loaded
        return {name: first[names[0]] for names in units if names[0] in first for name in names}

    def load(self, choice: Choice) -> None:
        """Go on with what a checkpoint says."""
        self.by_kind, self._loaded = {}, dict(choice)
