"""What choosers share: which pipeline a unit has in a step, and how it gets from one to another."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from thinwire.auto import FLUSH, Auto
from thinwire.auto.rules import DENSE
from thinwire.comm import GroupCommunicator, Nodes
from thinwire.cost.network import Network
from thinwire.feedback import NoFeedback
from thinwire.pipeline import Pipeline
from thinwire.units.unit import Unit

Choice = dict[str, str]
"""The label chosen for each tensor, by name; dense where there is none."""


@dataclass(slots=True)
class Decision:
    """What was chosen, and from what. Seconds are of whole steps, compute included."""

    step: int
    label: str  # of the whole model
    reason: str
    dense: float
    predicted: dict[str, float] = field(default_factory=dict)
    tried: dict[str, float] = field(default_factory=dict)
    network: Network | None = None
    compute: float = 0.0  # of a step, where it is known
    lost: float = 0.0  # dense steps' time that trials took more than dense would have
    units: Choice = field(default_factory=dict)  # where each has its own choice
    unit_costs: dict[str, dict[str, float]] = field(default_factory=dict)  # predicted, by label

    def row(self) -> dict[str, Any]:
        """What was chosen, and predicted and measured step times by label, for a result file."""
        steps = {
            label: {"predicted": self.predicted.get(label), "measured": measured}
            for label, measured in self.tried.items()
        }
        return {"choice": sorted({self.label, *self.units.values()}), "steps": steps}


class Chooser(ABC):
    """Decides for one kind of step: one that always has the same tensors."""

    def __init__(self, auto: Auto, comm: GroupCommunicator, nodes: Nodes | None) -> None:
        self.auto, self.comm, self.nodes = auto, comm, nodes
        self.pipelines = dict(zip(auto.labels, auto.alternatives, strict=True))
        self.decision: Decision | None = None
        self.units: dict[str, Unit] = {}  # of this step, by their first tensor's name

    @property
    @abstractmethod
    def grouping(self) -> Pipeline:
        """Whose `unit` and `bypass` say which tensors go together in this step."""

    @property
    def possible(self) -> tuple[Pipeline, ...]:
        """What units may go through in this step."""
        return (self.grouping,)

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether nothing is being tried now."""

    @abstractmethod
    def label_of(self, names: tuple[str, ...]) -> str:
        """The choice for a unit of these tensors in this step."""

    @abstractmethod
    def choice(self, names: tuple[str, ...]) -> str:
        """What was decided for a unit of these tensors."""

    @abstractmethod
    def end_step(self, elapsed: float) -> None:
        """The step is over, so many seconds after it began: so long it took at least.

        Here it communicates, at the same steps on all ranks.
        """

    def time_step(self, start: Any, end: Any) -> None:  # noqa: B027 - not all want to know
        """When the last step began, and when the next did."""

    def first_pipeline(
        self, names: tuple[str, ...], past: Pipeline | None, waits: bool
    ) -> Pipeline:
        """What a new unit begins with; what waits of its tensors must have a place."""
        pipeline = past or self.pipeline_for(names)
        return FLUSH if waits and isinstance(pipeline.feedback, NoFeedback) else pipeline

    def assign(self, unit: Unit, past: Pipeline | None) -> None:
        """Give the unit the pipeline of this step; that is `past` for what is not compressed."""
        pipeline = past or self.pipeline_for(unit.names)
        if unit.pipeline != pipeline and not self._must_flush(unit, pipeline):
            unit.switch(pipeline)
        self.units[unit.names[0]] = unit

    def pipeline_for(self, names: tuple[str, ...]) -> Pipeline:
        """The pipeline of a unit in this step."""
        # A checkpoint may name a choice that is no longer there.
        return self.pipelines.get(self.label_of(names), self.pipelines[DENSE])

    @property
    def device(self) -> torch.device:
        """Where this step's units are."""
        return next(iter(self.units.values())).spec.device

    def _must_flush(self, unit: Unit, pipeline: Pipeline) -> bool:
        """Whether what waits has no place in the new pipeline, and so must be sent first."""
        keeps, kept = pipeline.feedback, unit.pipeline.feedback
        if not isinstance(keeps, NoFeedback) or isinstance(kept, NoFeedback):
            return False
        if unit.pipeline != FLUSH:
            unit.switch(FLUSH)
            return True
        return not unit.whole


def common_label(choice: Mapping[str, str], labels: Mapping[str, Any]) -> str:
    """The label that most tensors of a checkpoint had, if there still is one of that name."""
    known = [label for label in choice.values() if label in labels]
    return max(sorted(set(known)), key=known.count, default=DENSE)
