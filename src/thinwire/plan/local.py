"""Whether local steps pay at a rate, and how many of them make a round.

A round of H steps computes for H·c seconds and exchanges once. Waited for, the exchange of x
seconds leaves a share H·c/(H·c + x) to the compute; in the background of the next steps it takes
nothing but the work of the device, where it arrives before it is sent again. A fragment is one of F
such exchanges, of x/F seconds each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from thinwire.cost.curves import Costs
from thinwire.cost.network import Network
from thinwire.cost.predict import Prediction, predict, shortest_round
from thinwire.frontends.local import SETUPS
from thinwire.pipeline import Pipeline
from thinwire.plan.models import Model
from thinwire.plan.verdict import Steps
from thinwire.results.file import Row
from thinwire.settings import check_range

METHODS = ("diloco", "streaming-diloco", "sparseloco")  # `localsgd` sends what `diloco` does


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """One set-up: seconds of a step's compute, of an exchange and of the device's work for it."""

    name: str
    compute: float
    exchange: float
    work: float
    sent: float  # bytes per rank and round
    utilisation: float
    fragments: int = 1  # that meet one after the other, at equal distances in a round

    @property
    def every(self) -> int:
        """The shortest round whose exchange may be waited for."""
        waits = self.exchange + self.work
        return self._divided(shortest_round(waits, self.compute, self.utilisation))

    @property
    def delay(self) -> int:
        """Steps that a fragment's exchange travels behind."""
        return math.ceil(self.exchange / self.fragments / self.compute)

    @property
    def every_behind(self) -> int:
        """The shortest round whose exchange travels in the background.

        One fragment travels after the other: a round is at least as long as all of them take.
        """
        waited = shortest_round(self.work, self.compute, self.utilisation)
        arrived = math.ceil(self.exchange / self.compute)
        return self._divided(max(arrived, self.delay + 1, waited))

    def _divided(self, steps: int) -> int:
        """So many or a few more, as the fragments divide them."""
        return math.ceil(steps / self.fragments) * self.fragments

    def row(self, model: Model, workers: int, network: Network) -> Row:
        """For a result file."""
        return {
            "setup": self.name,
            "model": model.name,
            "n": model.numel,
            "workers": workers,
            "alpha": network.link.alpha,
            "beta": network.link.beta,
            "compute_seconds": self.compute,
            "utilisation": self.utilisation,
            "exchange_seconds": self.exchange,
            "work_seconds": self.work,
            "bytes_per_round": self.sent,
            "every": self.every,
            "every_in_background": self.every_behind,
            "delay": self.delay,
        }


def pipelines() -> dict[str, Pipeline]:
    """What the set-ups send by."""
    return {name: SETUPS[name]().recipe for name in METHODS}


def local_plans(
    model: Model, workers: int, network: Network, costs: Costs | None, utilisation: float = 0.95
) -> list[LocalPlan]:
    """One for each set-up; the model's compute must be known."""
    check_range("utilisation", utilisation, 0, 1, open_low=True, open_high=True)
    plans = []
    for name, recipe in pipelines().items():
        round_end = predict(recipe, model.shapes, workers, network, costs)
        exchange, work = _parts(round_end)
        parts, sent = SETUPS[name]().fragments, round_end.sent
        plans.append(LocalPlan(name, model.compute, exchange, work, sent, utilisation, parts))
    return plans


def _parts(end: Prediction) -> tuple[float, float]:
    """On the network, and on the device."""
    return sum(unit.exchange for unit in end.units), sum(unit.work for unit in end.units)


def local_verdict(steps: Steps, plans: Sequence[LocalPlan]) -> str:
    """In a sentence or two, beside the fastest recipe that exchanges at every step."""
    name, best = next(iter(steps.items()))
    compute, wanted = plans[0].compute, plans[0].utilisation
    share = min(1.0, compute / best.seconds)
    computes = f"with {name} at every step the compute is {share:.0%} of the time"
    if share >= wanted:
        return f"Local steps do not pay: {computes}."
    rounds = "; ".join(
        f"{plan.name} every {plan.every} with delay=0, or every {plan.every_behind} with "
        f"delay={plan.delay}"
        for plan in sorted(plans, key=lambda plan: plan.every)
    )
    return f"Local steps pay: {computes}. For {wanted:.0%} of it: {rounds}."
