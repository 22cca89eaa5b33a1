"""What local steps are made of; the papers' own choices by name, and one of ours."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from thinwire import cookbook
from thinwire.auto import Auto
from thinwire.collective import LowRank
from thinwire.errors import RecipeError
from thinwire.feedback import NoFeedback, Residual
from thinwire.pipeline import Pipeline
from thinwire.settings import check_choice, check_integer, check_range
from thinwire.sparsify import ChunkTopK, Everything

Every = int | Callable[[int], int]
"""Local steps of a round: the same for all, or by the round's number."""
Moments = Literal["own", "mean"]
OuterFactory = Callable[[list[Tensor]], torch.optim.Optimizer]
NESTEROV: OuterFactory = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
LITTLE_MOMENTUM: OuterFactory = partial(torch.optim.SGD, lr=1.0, momentum=0.3, nesterov=True)
PLAIN: OuterFactory = partial(torch.optim.SGD, lr=1.0)


@dataclass(frozen=True, slots=True)
class Setup:
    """A recipe for the pseudo-gradients and what is done with them.

    `outer` makes the optimiser that moves the shared copy. `fragments` meet one after the other, at
    equal distances in a round of `every` steps, and are applied `delay` steps after they were sent.
    `blend` of this rank's own weights then stays in them (Streaming DiLoCo's α, section 2.2.2);
    None keeps the steps that were made meanwhile, and those alone.

    `hold` of its way since the ranks last met a rank keeps while a fragment travels, with a delay
    and without blending. All of it is what one rank takes for the mean, with P times its noise;
    nothing of it goes on from an old model. Half was better than either. What it lays down is in
    the message, and comes back in the mean.

    `own` of what waits in a rank's residual stays in that rank's weights: it was this rank's way,
    and is on no other until it is sent. So a round begins at the shared copy less own times the
    residual, and nothing counts twice: a pseudo-gradient is the way from there. `synchronize` ends
    with the copy itself.

    `moments="mean"` lets Adam go by what its moments would be, had gradients been averaged, as far
    as a rank knows: v after every step, and m when a mean arrives of what travels whole
    (`frontends/local/moments.py`).
    """

    recipe: Pipeline
    every: Every = 30
    outer: OuterFactory = NESTEROV
    fragments: int = 1
    delay: int = 0
    blend: float | None = None
    hold: float = 1.0
    own: float = 0.0
    moments: Moments = "own"

    def __post_init__(self) -> None:
        check_integer("fragments", self.fragments, 1)
        check_integer("delay", self.delay, 0)
        if self.blend is not None:
            check_range("blend", self.blend, 0, 1, open_high=True)
        check_range("hold", self.hold, 0, 1, open_low=True)
        check_range("own", self.own, 0, 1)
        check_choice("moments", self.moments, get_args(Moments))
        if self.own and self.blend is not None:
            raise RecipeError(f"own={self.own} and blend={self.blend}: both keep a rank's own way")
        if isinstance(self.outer, torch.optim.Optimizer) or not callable(self.outer):
            raise RecipeError(
                f"outer={type(self.outer).__name__} must be a function that makes an optimiser of "
                "parameters, as functools.partial(torch.optim.SGD, lr=0.7, momentum=0.9)"
            )
        self.length(0)

    @property
    def sends_whole(self) -> bool:
        """Whether a mean is of all that ranks moved, but for what rounding leaves."""
        lossy = (isinstance(one.collective, LowRank) for one in self.recipe.alternatives)
        return sends_whole(self.recipe) and not any(lossy)

    def length(self, number: int) -> int:
        """The local steps of a round."""
        steps = self.every(number) if callable(self.every) else self.every
        check_integer("every", steps, 1)
        if steps % self.fragments:
            raise RecipeError(
                f"fragments={self.fragments} do not divide the every={steps} steps of a round: "
                "each must meet as many steps after the one before it"
            )
        if self.delay >= steps:
            raise RecipeError(
                f"delay={self.delay} must be less than every={steps}: a fragment must have "
                "arrived before it is sent again"
            )
        return steps


def diloco() -> Setup:
    """DiLoCo (Douillard et al., 2023): all of it every 500 steps, outer Nesterov."""
    return Setup(cookbook.recipe("dense"), 500, NESTEROV)


def streaming_diloco() -> Setup:
    """Streaming DiLoCo (Douillard et al., 2025): fragments in 4 bits, applied 5 steps later.

    Its 4-bit floats have no feedback either; ours are integers with a scale for each group.
    """
    recipe = cookbook.recipe("int4", feedback=NoFeedback())
    return Setup(recipe, 100, NESTEROV, fragments=4, delay=5, blend=0.5)


def sparseloco() -> Setup:
    """SparseLoCo (2508.15706): 64 of each 4096 in 2 bits, e ← 0.95·e + Δ, outer SGD."""
    return Setup(cookbook.recipe("chunk-topk", feedback=Residual(0.95)), 30, PLAIN)


def shortloco() -> Setup:
    """Ours, not a paper's: SparseLoCo's messages after short rounds, of which nothing is forgotten.

    64 of each 4096 in 2 bits every 5 steps, a residual without decay, outer Nesterov of learning
    rate 1 and momentum 0.3. Most of what local steps lose to synchronous ones they lose while ranks
    are apart, and little in a selection whose rest is kept: at equal bytes rounds of 2 to 5 steps
    were better than single ones, and than 10 or 20. Most of what a rank has done waits to be sent:
    0.4 of it stays in its weights, so that gradients are not those of an old model.

    Adam moves by g/√(g² + σ²), and a rank alone has P times the variance σ² of the mean gradient:
    try learning rates up to √P times that of synchronous steps. The outer momentum makes up for
    some of it, and more of it oscillates: Adam's own mean is longer than a round.
    """
    return Setup(cookbook.recipe("chunk-topk"), 5, LITTLE_MOMENTUM, hold=0.5, own=0.4)


def localsgd() -> Setup:
    """Local SGD (Stich, 2019): the mean of the parameters, every 8 steps."""
    return Setup(cookbook.recipe("dense"), 8, PLAIN)


def demo() -> Setup:
    """DeMo's decoupled momentum (Peng et al., 2024): what was sent leaves it, the rest goes on.

    m ← 0.999·m + Δ; send the largest 32 of each 4096; m ← m - what was sent. Its momentum is thus a
    residual that decays. Without its cosine transform and without the sign of what was sent; use
    plain SGD as the optimiser.
    """
    recipe = cookbook.recipe("chunk-topk", sparsifier=ChunkTopK(32), feedback=Residual(0.999))
    return Setup(recipe, 1, PLAIN)


SETUPS: dict[str, Callable[[], Setup]] = {
    build.__name__.replace("_", "-"): build
    for build in (diloco, streaming_diloco, sparseloco, shortloco, localsgd, demo)
}


def sends_whole(recipe: Pipeline) -> bool:
    """Whether nothing is selected."""
    return all(isinstance(one.sparsifier, Everything) for one in recipe.alternatives)


def setup(given: Pipeline | str | Mapping[str, Any], **settings: Any) -> Setup:
    """A set-up by its name, or around a recipe; settings that are None are its own.

    Nesterov's momentum after a selection smears each element, which comes rarely and then much of
    it, over the rounds that follow: behind one the outer optimiser is plain SGD, as in SparseLoCo.
    """
    if isinstance(given, str) and given in SETUPS:
        own = SETUPS[given]()
    else:
        recipe = cookbook.recipe(given)
        if isinstance(recipe, Auto):
            raise RecipeError(
                "a recipe that chooses times steps that exchange gradients, and these do not: name "
                "one for outer()"
            )
        own = Setup(recipe, outer=NESTEROV if sends_whole(recipe) else PLAIN)
    return dataclasses.replace(own, **{k: v for k, v in settings.items() if v is not None})
