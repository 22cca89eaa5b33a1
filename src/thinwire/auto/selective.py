"""Compression where calibrated costs say that it pays, unit by unit (DRAGONN, section 4.2)."""

from collections.abc import Mapping

from thinwire.auto import Auto
from thinwire.auto.chooser import Chooser, Decision
from thinwire.auto.rules import DENSE, cheapest
from thinwire.comm import GroupCommunicator, Nodes
from thinwire.cost.buckets import PlannedUnit
from thinwire.cost.calibration import calibrate
from thinwire.cost.predict import unit_cost
from thinwire.cost.probe import measure_network
from thinwire.pipeline import Pipeline


class CostChooser(Chooser):
    """Looks at the units of the first step, and of every step that has others."""

    def __init__(
        self,
        auto: Auto,
        comm: GroupCommunicator,
        nodes: Nodes | None = None,
        loaded: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(auto, comm, nodes)
        self._loaded = dict(loaded or {})
        self._known: set[str] = set()
        self._steps = 0

    @property
    def grouping(self) -> Pipeline:
        return self.auto

    @property
    def possible(self) -> tuple[Pipeline, ...]:
        return tuple(self.pipelines.values())

    @property
    def settled(self) -> bool:
        return self.comm.size == 1 or self.decision is not None

    def label_of(self, names: tuple[str, ...]) -> str:
        chosen = self.decision.units if self.decision else self._loaded
        return chosen.get(names[0], DENSE)

    def choice(self, names: tuple[str, ...]) -> str:
        return self.label_of(names)

    def end_step(self, elapsed: float) -> None:
        self._steps += 1
        if self.comm.size > 1 and self.units and self._known != set(self.units):
            self._known = set(self.units)
            self.decision = self._decide()
        self.units = {}

    def _decide(self) -> Decision:
        """The network is measured every time: it may be another than yesterday's."""
        network = measure_network(self.comm, self.device, self.nodes)
        recipes = list(self.pipelines.values())
        costs = calibrate(self.comm, recipes, self.device, nodes=self.nodes, network=network).costs
        units = [
            PlannedUnit(u.names, u.spec.numel, 1.0, shapes=u.spec.shapes)
            for u in self.units.values()
        ]
        predicted = {
            label: {
                unit.names[0]: unit_cost(pipeline, unit, self.comm.size, network, costs).seconds
                for unit in units
            }
            for label, pipeline in self.pipelines.items()
        }
        chosen = {unit: label for unit, label in cheapest(predicted).items() if label != DENSE}
        return Decision(
            self._steps,
            DENSE,
            "predicted",
            sum(predicted[DENSE].values()),
            network=network,
            units=chosen,
            unit_costs=predicted,
        )
