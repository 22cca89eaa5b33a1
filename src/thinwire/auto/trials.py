"""Which choice of an `Auto` the whole model takes: predicted, tried on real steps, checked again.

Whole steps are compared, from the first gradient of one to the first gradient of the next: compute
is in them, and so is all that hides behind it. How long a step took is known when the next one has
begun, on a GPU by events that nobody waits for; a decision at the end of a step is made from the
steps before it.

Every decision is made from numbers that are the same on all ranks, at the end of the same step.
"""

from collections.abc import Generator, Mapping
from math import inf
from typing import Any, NoReturn

from thinwire.auto import Auto
from thinwire.auto.candidates import Forecast, method_of, predicted_steps
from thinwire.auto.chooser import Chooser, Decision, common_label
from thinwire.auto.rules import (
    ALIKE,
    BUDGET,
    DENSE,
    TRIALS,
    WORTH,
    fastest,
    lost,
    next_trial,
    typical,
)
from thinwire.comm import GroupCommunicator, Nodes
from thinwire.cost.probe import agreed
from thinwire.kernels.compilations import compilations
from thinwire.pipeline import Pipeline

BEGIN = 2  # steps before the first that is measured: DDP makes its buckets anew after the first
SETTLE = 1  # steps of a choice that are not measured: buffers are made, and what waits is moved
FIRST_CHECK, CHECK_FACTOR = 100, 10  # steps from a decision to the first check, then to the next
CUT = 2  # times the best so far: slower choices are not measured on
DRIFT = 1.25  # of the step time: everything is measured anew

Plan = Generator[str, None, NoReturn]
"""Yields the label of the next step."""


class TrialChooser(Chooser):
    """One choice for the whole model. `_course` is the plan, as a generator."""

    def __init__(
        self,
        auto: Auto,
        comm: GroupCommunicator,
        nodes: Nodes | None = None,
        loaded: Mapping[str, str] | None = None,
        overlap: bool = True,
    ) -> None:
        """`overlap`: gradients come one after the other, while others are still computed."""
        super().__init__(auto, comm, nodes)
        self._steps, self._overlap, self._elapsed = 0, overlap, 0.0
        self._before = inf  # what the last step before those took that were measured last
        self._known: set[str] = set()  # the tensors of the step before
        self._took: list[tuple[Any, Any]] | None = None  # begin and end of the steps measured now
        self._begin(common_label(loaded or {}, self.pipelines))

    @property
    def grouping(self) -> Pipeline:
        return self.pipelines[self.label]

    @property
    def settled(self) -> bool:
        decided = self.decision is not None and self.label == self.decision.label
        return self.comm.size == 1 or decided

    def label_of(self, names: tuple[str, ...]) -> str:
        return self.label

    def choice(self, names: tuple[str, ...]) -> str:
        return self.decision.label if self.decision else self._loaded

    def time_step(self, start: Any, end: Any) -> None:
        if self._took is not None:
            self._took.append((start, end))

    def end_step(self, elapsed: float) -> None:
        if not self.units:
            return  # a step without gradients is none
        self._steps += 1
        self._elapsed = elapsed
        names = {name for unit in self.units.values() for name in unit.names}
        if self._known <= names:
            self.label = next(self._plan)
        else:  # a step of other tensors: what was measured is not of these
            self._begin(self._loaded if self.decision is None else DENSE)
        self._known = names
        self.units = {}

    def _begin(self, loaded: str) -> None:
        self.decision, self._loaded, self._took = None, loaded, None
        self._plan = self._course(loaded)
        self.label = next(self._plan)

    def _course(self, loaded: str) -> Plan:
        while self.comm.size == 1:
            yield DENSE
        if loaded != DENSE:  # from a checkpoint: go on with it, and decide anew later
            yield from _go_on(loaded, FIRST_CHECK)
        while True:
            yield from _go_on(DENSE, BEGIN)
            self.decision = yield from self._decide()
            yield from self._until_it_drifts(self.decision)

    def _decide(self) -> "Generator[str, None, Decision]":
        dense = yield from self._measure(DENSE, self.auto.trial, settle=0)
        tried, spent, last = {DENSE: dense}, 0.0, ""
        forecast = self._predict(dense)
        while len(tried) <= TRIALS and spent < BUDGET:
            label = next_trial(forecast.steps, tried, method_of)
            if label is None:
                break
            begin = self._steps
            tried[label] = yield from self._measure(label, 1, limit=CUT * min(tried.values()))
            spent += lost([tried[label]] * (self._steps - begin), dense)
            if last:  # by now it is known how long its last step took
                tried[last] = min(tried[last], self._before)
            last = label
        decision = Decision(self._steps, fastest(tried), "measured", dense, forecast.steps, tried)
        decision.network, decision.compute, decision.lost = (
            forecast.network,
            forecast.compute,
            spent,
        )
        if len(tried) == 1:
            decision.reason = "no other choice was predicted to be faster"
        yield from self._confirm(decision)
        decision.step = self._steps
        return decision

    def _confirm(self, decision: Decision) -> "Generator[str, None, None]":
        """Go on with the fastest, and look whether it stays so; if not, take the next."""
        if decision.label == DENSE:
            return
        tried, label = decision.tried, decision.label
        tried[label] = yield from self._measure(label, self.auto.trial)
        others = [seconds for other, seconds in tried.items() if other not in (label, DENSE)]
        if tried[label] > min(ALIKE * min(others, default=inf), WORTH * decision.dense):
            decision.label = fastest(tried)
        if decision.label == DENSE:
            decision.reason = "whole steps were not clearly faster"

    def _until_it_drifts(self, decision: Decision) -> "Generator[str, None, None]":
        """Keep to the decision while it looks right: checked after 100 steps, 1,000, 10,000 …

        Steps must take as long as they did when it was made; and, where that costs less than a
        tenth of the steps since, dense is tried once more.
        """
        label, wait = decision.label, FIRST_CHECK
        expected = decision.tried[label]
        while True:
            yield from _go_on(label, wait)
            now = yield from self._measure(label, self.auto.trial, settle=0)
            if not expected / DRIFT < now < expected * DRIFT:
                return
            looks = SETTLE + 2
            if label != DENSE and looks * decision.dense < 0.1 * wait * now:
                dense = yield from self._measure(DENSE, 1)
                if now > WORTH * dense:
                    return
            wait *= CHECK_FACTOR

    def _measure(
        self, label: str, steps: int, settle: int = SETTLE, limit: float = inf
    ) -> "Generator[str, None, float]":
        """Steps of one choice, and how long a typical one takes, agreed on by the ranks.

        One step more than are measured: the last one's time is known when the next has begun. One
        that takes longer than the limit ends it, unless something was compiled in it.
        """
        took: list[tuple[Any, Any]] = []
        self._took = took
        for _ in range(settle + steps + 1):
            before = compilations()
            yield label
            if limit < inf:
                numbers = [self._elapsed, compilations() - before]
                elapsed, compiled = agreed(self.comm, numbers)
                if elapsed > limit and not compiled:
                    self._before, self._took = inf, None
                    return elapsed
        self._took = None
        measured = typical([_seconds(*marks) for marks in took[-steps:]])
        seconds, self._before = agreed(self.comm, [measured, _seconds(*took[0])])
        return seconds

    def _predict(self, dense: float) -> Forecast:
        """Seconds of a step by each choice, from what a dense one took."""
        shapes = {
            name: shape
            for unit in self.units.values()
            for name, shape in zip(unit.names, unit.spec.shapes, strict=True)
        }
        forward = dict(reversed(shapes.items()))  # units come from the last tensor to the first
        return predicted_steps(
            self.pipelines, forward, dense, self.comm, self.device, self.nodes, self._overlap
        )


def _go_on(label: str, steps: int) -> Generator[str, None, None]:
    for _ in range(steps):
        yield label


def _seconds(start: Any, end: Any) -> float:
    """Between two marks; those of a device have passed by the end of the next step."""
    if isinstance(start, float):
        return float(end - start)
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000
