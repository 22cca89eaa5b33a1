"""What the demo trains: one model over slow links, with the recipes that a newcomer should see."""

from collections.abc import Sequence
from dataclasses import dataclass

import thinwire as tw
from thinwire.bench.converge.plan import Case, refuse_impossible
from thinwire.bench.converge.plan import Settings as Learning
from thinwire.bench.peers import BASELINE
from thinwire.bench.runner import Device
from thinwire.bench.steps.plan import own_density
from thinwire.bench.train.hooks import DDP_PEERS
from thinwire.workloads.lessons import LESSONS

PEERS = (BASELINE, "torch-bf16", "torch-powersgd-4")
NOT_SHOWN = ("auto", "dense")  # a trial takes longer than a run; the baseline is dense
LOOKS = 25  # at the held-out part: the points of a curve
DENSITY = 0.01


@dataclass(frozen=True, slots=True)
class Scene:
    """A model, links that are too slow for it, and how it learns there."""

    model: str
    rate: str
    steps: int
    learning_rate: float
    low_rank: str  # the one to show: how much of a model it needs depends on the model


SCENES: dict[Device, Scene] = {
    # 1.3 MB of gradients for a few milliseconds of compute, which two cores share.
    "cpu": Scene("embedding-small", "100mbit", 100, 1e-2, "powersgd"),
    # 102 MB for 17 ms. Over 1 Gbit/s the baseline alone would take longer than anyone looks on.
    "cuda": Scene("transformer25m", "10gbit", 150, 1e-3, "powersgd(0.125, 'bf16')"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for; a rate of None is the loopback."""

    workers: int = 4
    recipes: tuple[str, ...] = ()  # none named: those worth showing
    everything: bool = False
    steps: int | None = None
    rate: str | None = "100mbit"
    seed: int = 0
    device: Device = "cpu"

    @property
    def scene(self) -> Scene:
        return SCENES[self.device]

    def names(self) -> list[str]:
        """The baseline comes first: the others refer to it."""
        shown = (*PEERS, "int4", self.scene.low_rank, "topk")
        chosen: Sequence[str] = self.recipes or shown
        if self.everything:
            chosen = [*DDP_PEERS, *(name for name in tw.recipes() if name not in NOT_SHOWN)]
        return list(dict.fromkeys([BASELINE, *chosen]))

    def learning(self) -> Learning:
        """As `bench converge` is told, whose runs these are."""
        steps = self.steps or self.scene.steps
        return Learning(
            device=self.device,
            models=(self.scene.model,),
            recipes=tuple(self.names()),
            workers=self.workers,
            rates=(self.rate,),
            density=DENSITY,
            seeds=1,
            seed=self.seed,
            learning_rates=(self.scene.learning_rate,),
            steps=steps,
            every=max(1, steps // LOOKS),
            check="warn",
        )


def plan(settings: Settings) -> list[Case]:
    """A run for each recipe, from end to end over the links themselves."""
    refuse_impossible(settings.learning())
    scene = settings.scene
    return [
        Case(
            "verify",
            settings.workers,
            settings.rate,
            scene.model,
            name,
            own_density(name, DENSITY),
            "adamw",
            scene.learning_rate,
            settings.seed,
        )
        for name in settings.names()
    ]


def examples(settings: Settings) -> int:
    """Of a step, on all workers together."""
    return settings.workers * LESSONS[settings.scene.model].examples
