"""Which choice of an `Auto` each unit takes: predicted, tried, confirmed, and checked again.

Every decision is made from numbers that are the same on all ranks, at the end of the same step.
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from thinwire.auto import FLUSH, Auto
from thinwire.auto.rules import DENSE, Measured, cheapest, finalists, is_worth, middle
from thinwire.comm import GroupCommunicator, Nodes
from thinwire.cost.buckets import PlannedUnit
from thinwire.cost.calibration import calibrate
from thinwire.cost.curves import Costs
from thinwire.cost.network import Network
from thinwire.cost.predict import unit_cost
from thinwire.cost.probe import agreed, measure_network
from thinwire.feedback import NoFeedback
from thinwire.pipeline import Pipeline
from thinwire.units.unit import SavedState, Unit

SETTLE = 1  # steps that are not measured: the first with these units, and the first of a choice
FIRST_CHECK, CHECK_FACTOR = 100, 10  # steps from a decision to the first check, then to the next
SLOW = 0.5  # seconds: quicker steps vary more and cost less, so that more of them are measured
LOOK = 2  # steps to look at dense: one sends all that waits, the other is measured
DRIFT = 1.25  # of the step time: everything is measured anew
CALIBRATED = 6  # choices whose work on the device is measured: those of the shortest exchange

Choice = dict[str, str]
"""The label chosen for each tensor, by name; dense where there is none."""


@dataclass(slots=True)
class Decision:
    """What was chosen, and from what."""

    step: int
    choice: Choice
    reason: str
    dense: Measured
    predicted: dict[str, dict[str, float]] = field(default_factory=dict)
    tried: dict[str, Measured] = field(default_factory=dict)
    chosen: Measured | None = None
    network: Network | None = None

    def predicted_step(self, choice: Choice) -> float | None:
        """What a step was expected to take: dense's, with other times in place of its units'."""
        labels = {unit: choice.get(unit, DENSE) for unit in self.dense.units}
        if any(unit not in self.predicted.get(label, {}) for unit, label in labels.items()):
            return None
        busy = sum(self.predicted[label][unit] for unit, label in labels.items())
        return self.dense.step - self.dense.busy + busy

    def row(self) -> dict[str, Any]:
        """What was chosen, and predicted and measured step times by label, for a result file."""
        steps = {
            label: {
                "predicted": self.predicted_step(dict.fromkeys(self.dense.units, label)),
                "measured": measured.step,
            }
            for label, measured in self.tried.items()
        }
        return {"choice": sorted(set(self.choice.values())) or [DENSE], "steps": steps}


class Chooser:
    """Decides for one kind of step: one that always has the same units.

    `_course` is the plan, as a generator: it yields what to do in the next step, and gets what that
    step took. It communicates between steps, at the same ones on all ranks.
    """

    def __init__(
        self,
        auto: Auto,
        comm: GroupCommunicator,
        nodes: Nodes | None = None,
        loaded: Mapping[str, str] | None = None,
    ) -> None:
        self.auto, self.comm, self.nodes = auto, comm, nodes
        self._pipelines = dict(zip(auto.labels, auto.alternatives, strict=True))
        self.decision: Decision | None = None
        self._steps = 0
        self._units: dict[str, Unit] = {}  # of this step, by their first tensor's name
        self._known: set[str] = set()  # those of the step before
        self._spent: dict[str, float] = {}
        self._loaded = dict(loaded or {})
        self._begin(self._loaded)

    @property
    def settled(self) -> bool:
        """Whether nothing is being tried now."""
        decided = self.decision is not None and self.choice == self.decision.choice
        return self.comm.size == 1 or decided

    def first_pipeline(self, names: tuple[str, ...], saved: Mapping[str, SavedState]) -> Pipeline:
        """What a new unit begins with; what waits of its tensors must have a place."""
        pipeline = self._pipeline_for(names)
        waits = any("feedback/residual" in saved.get(name, {}) for name in names)
        return FLUSH if waits and isinstance(pipeline.feedback, NoFeedback) else pipeline

    def assign(self, unit: Unit) -> None:
        """Give the unit the pipeline of this step."""
        pipeline = self._pipeline_for(unit.names)
        if unit.pipeline != pipeline and not self._must_flush(unit, pipeline):
            unit.switch(pipeline)
        self._units[unit.names[0]] = unit
        if self._measuring:
            self._spent[unit.names[0]] = unit.meter.spent()

    def end_step(self, seconds: float) -> None:
        """The step is over; it took so long since the one before was over."""
        if not self._units:
            return  # a step without gradients is none
        self._steps += 1
        if self._known == set(self._units):
            took = {n: u.meter.spent() - self._spent[n] for n, u in self._measured()}
            self.choice, self._measuring = self._plan.send(Measured(seconds, took))
        else:  # as after DDP has made its buckets anew: what was measured is of other units
            self._known = set(self._units)
            self._begin({} if self.decision else self._loaded)
        self._units, self._spent = {}, {}

    def _begin(self, choice: Choice) -> None:
        self.decision = None
        self._plan = self._course(choice)
        self.choice, self._measuring = next(self._plan)

    def _measured(self) -> Iterable[tuple[str, Unit]]:
        return self._units.items() if self._measuring else ()

    def _pipeline_for(self, names: tuple[str, ...]) -> Pipeline:
        label = self.choice.get(names[0], DENSE)
        # A checkpoint may name a choice that is no longer there.
        return self._pipelines.get(label, self._pipelines[DENSE])

    def _must_flush(self, unit: Unit, pipeline: Pipeline) -> bool:
        """Whether what waits has no place in the new pipeline, and so must be sent first."""
        keeps, kept = pipeline.feedback, unit.pipeline.feedback
        if not isinstance(keeps, NoFeedback) or isinstance(kept, NoFeedback):
            return False
        if unit.pipeline != FLUSH:
            unit.switch(FLUSH)
            return True
        return not unit.whole

    def _course(self, loaded: Choice) -> "Course":
        while self.comm.size == 1:
            yield {}, False
        if loaded:  # from a checkpoint: go on with it, and decide anew later
            yield from _go_on(loaded, FIRST_CHECK)
        while True:
            dense = yield from self._try({})
            self.decision = yield from self._decide(dense)
            yield from self._until_it_drifts(self.decision)

    def _decide(self, dense: Measured) -> "Generator[Step, Measured, Decision]":
        predicted, network = self._predict()
        if not self.auto.trial:
            choice = _without_dense(cheapest(predicted))
            return Decision(self._steps, choice, "predicted", dense, predicted, network=network)
        tried = {DENSE: dense}
        for label in finalists({k: p for k, p in predicted.items() if k != DENSE}, dense.units):
            tried[label] = yield from self._try(dict.fromkeys(dense.units, label))
        choice = _without_dense(cheapest({label: m.units for label, m in tried.items()}))
        decision = Decision(
            self._steps, choice, "measured", dense, predicted, tried, dense, network
        )
        if choice:
            decision.chosen = yield from self._try(choice)
            if not is_worth(decision.chosen, dense):
                decision.choice, decision.reason = {}, "whole steps were not clearly faster"
        elif len(tried) == 1:
            decision.reason = "no other choice was predicted to be faster"
        return decision

    def _until_it_drifts(self, decision: Decision) -> "Generator[Step, Measured, None]":
        """Keep to the decision while it looks right: checked after 100 steps, 1,000, 10,000 …

        Steps must take as long as they did when it was made; and, where that costs less than a
        tenth of the steps since, dense is tried once more.
        """
        choice, wait = decision.choice, FIRST_CHECK
        expected = (decision.chosen or decision.dense).step
        while True:
            yield from _go_on(choice, wait)
            if not self.auto.trial:
                continue
            now = yield from self._try(choice, settle=0)
            if not expected / DRIFT < now.step < expected * DRIFT:
                return
            if choice and LOOK * decision.dense.step < 0.1 * wait * now.step:
                yield from _go_on({}, LOOK - 1)
                dense = self._agreed((yield {}, True))
                if not is_worth(now, dense):
                    return
            wait *= CHECK_FACTOR

    def _try(self, choice: Choice, settle: int = SETTLE) -> "Generator[Step, Measured, Measured]":
        """Some steps of one kind, and what they take, agreed on by the ranks."""
        yield from _go_on(choice, settle)
        seen = [(yield choice, True)]
        (once,) = agreed(self.comm, [seen[0].step])
        least = max(1, self.auto.trial)
        while len(seen) < (least if once > SLOW else 2 * least + 1):
            seen.append((yield choice, True))
        return self._agreed(middle(seen))

    def _agreed(self, mine: Measured) -> Measured:
        """The median over the ranks."""
        step, *units = agreed(self.comm, [mine.step, *mine.units.values()])
        return Measured(step, dict(zip(mine.units, units, strict=True)))

    def _predict(self) -> tuple[dict[str, dict[str, float]], Network]:
        """Seconds of each unit by each choice, dense included, from calibrated costs.

        The network is measured every time: it may be another than yesterday's.
        """
        device = next(iter(self._units.values())).spec.device
        network = measure_network(self.comm, device, self.nodes)
        units = [PlannedUnit(u.names, u.spec.numel, 1.0) for u in self._units.values()]
        pipelines, ranks = self._pipelines, self.comm.size

        def seconds(label: str, costs: Costs | None) -> dict[str, float]:
            unit_costs = (unit_cost(pipelines[label], u, ranks, network, costs) for u in units)
            return {cost.unit.names[0]: cost.seconds for cost in unit_costs}

        on_the_wire = {label: sum(seconds(label, None).values()) for label in pipelines}
        best = sorted(pipelines, key=lambda label: on_the_wire[label])[:CALIBRATED]
        best = list(dict.fromkeys([DENSE, *best]))
        recipes = [pipelines[label] for label in best]
        costs = calibrate(self.comm, recipes, device, nodes=self.nodes, network=network).costs
        return {label: seconds(label, costs) for label in best}, network


Step = tuple[Choice, bool]
"""What to do in the next step, and whether to measure it."""
Course = Generator[Step, Measured, NoReturn]


def _go_on(choice: Choice, steps: int) -> Generator[Step, Measured, None]:
    for _ in range(steps):
        yield choice, False


def _without_dense(choice: Choice) -> Choice:
    return {unit: label for unit, label in choice.items() if label != DENSE}
