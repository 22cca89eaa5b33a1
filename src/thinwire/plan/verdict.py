"""What predictions come to: whether to compress, by what, and what it does to the loss."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from thinwire.auto.quality import IN_WORDS, Quality, admits, quality_of
from thinwire.cost.network import Network
from thinwire.cost.predict import Prediction
from thinwire.format import duration
from thinwire.pipeline import Pipeline
from thinwire.results.file import Row

WORTH = 0.95  # of dense's step: a smaller gain is not worth the change
HIDDEN = 1.05  # of the compute: a dense step that takes no longer than this has its exchange free
SLOWER, FASTER = 1e4, 1e-4  # bounds of the links that are looked at, beside the one at hand
HALVINGS = 24

Answer = Literal["yes", "no", "at a price"]
Steps = Mapping[str, Prediction]
"""By recipe, the fastest first; dense is one of them."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether compression pays at the same loss, and at the price of more steps."""

    answer: Answer
    text: str
    best: dict[Quality, str]  # of what each tier admits


def diagnose(
    steps: Steps, recipes: Mapping[str, Pipeline], compute: float, below: float | None = None
) -> Verdict:
    """In a sentence or two; `below`: Gbit/s at which the answer would be yes."""
    best: dict[Quality, str] = {
        quality: next(name for name in steps if admits(quality, recipes[name]))
        for quality in ("exact", "near", "fast")
    }
    if _pays(steps, best["near"]):
        return Verdict("yes", f"Yes: {_gain(steps, best['near'])}{_faster(steps, best)}", best)
    if _pays(steps, best["fast"]):
        price = f"{best['fast']} ends {IN_WORDS['fast']}"
        text = f"Only at a price: {_gain(steps, best['fast'])} {price}."
        return Verdict("at a price", text + _below(below), best)
    return Verdict("no", f"No: {_why_not(steps, compute)}{_below(below)}", best)


def tiers(steps: Steps, recipes: Mapping[str, Pipeline], verdict: Verdict) -> list[Row]:
    """What each tier's best recipe would gain over dense, and of which tier that one is."""
    dense = steps["dense"]
    return [
        {
            "quality": quality,
            "recipe": name,
            "quality_of_recipe": quality_of(recipes[name]),
            "gain": dense.seconds / best.seconds,
            "gain_low": dense.low / best.high if best is not dense else 1.0,
            "gain_high": dense.high / best.low if best is not dense else 1.0,
        }
        for quality, name in verdict.best.items()
        if (best := steps[name]).low > 0
    ]


def link_below(
    network: Network, steps: Callable[[Network], Steps], recipes: Mapping[str, Pipeline]
) -> float | None:
    """Gbit/s of the fastest link over which something pays that keeps the loss; None: none."""

    def pays(factor: float) -> bool:
        near = {name: step for name, step in steps(_slowed(network, factor)).items()
                if admits("near", recipes[name])}  # fmt: skip
        return _pays(near, next(iter(near)))

    low, high = FASTER, SLOWER
    if not network.link.beta or not pays(high):
        return None
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if pays(middle) else (middle, high)
    return 8e-9 / (network.link.beta * high)


def _slowed(network: Network, factor: float) -> Network:
    ring = network.ring and replace(network.ring, beta=factor * network.ring.beta)
    return replace(network, link=replace(network.link, beta=factor * network.link.beta), ring=ring)


def _pays(steps: Steps, name: str) -> bool:
    return steps[name].seconds <= WORTH * steps["dense"].seconds


def _gain(steps: Steps, name: str) -> str:
    best, dense = steps[name], steps["dense"]
    sure = "" if best.high < dense.low else " The two intervals overlap: measure before you decide."
    return (
        f"{name} takes {duration(best.seconds)} per step where dense takes "
        f"{duration(dense.seconds)}, {dense.seconds / best.seconds:.1f} times as long.{sure}"
    )


def _faster(steps: Steps, best: Mapping[Quality, str]) -> str:
    """What would be faster than what keeps the loss, and its price."""
    near, fast = best["near"], best["fast"]
    kept = f" Its loss ends {IN_WORDS['near']}."
    if steps[fast].seconds > WORTH * steps[near].seconds:
        return kept
    return f"{kept} {fast} takes {duration(steps[fast].seconds)}, and ends {IN_WORDS['fast']}."


def _why_not(steps: Steps, compute: float) -> str:
    dense = steps["dense"]
    other = next((step for name, step in steps.items() if name != "dense"), dense)
    reason = (
        f"the exchange ({duration(dense.busy)}) hides behind {duration(compute)} of compute"
        if dense.seconds <= HIDDEN * compute
        else f"the best other recipe takes {duration(other.seconds)}"
    )
    return f"a step takes {duration(dense.seconds)} with dense allreduce; {reason}."


def _below(gbps: float | None) -> str:
    return "" if gbps is None else f" Below {gbps:.2g} Gbit/s it would pay at the same loss."
