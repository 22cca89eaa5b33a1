"""What a recipe does before the network, whole: what `select` in `handle.stats()` is held against.

Step after step, with another gradient in each: thresholds and guesses move as they do in training.
On a GPU it goes the way that the engine takes there: recipes that can do so ask the host nothing.
Unlike the kernels it is made of, it is measured from an idle device, so its launches count.
"""

import random
from collections.abc import Callable

import torch

from thinwire.bench.kernels.ops import Inputs, Op, Work
from thinwire.comm import GroupCommunicator
from thinwire.cookbook import recipe
from thinwire.pipeline import Pipeline, Prepared
from thinwire.types import StepContext, TensorSpec

WHOLE = "recipe"  # in place of an implementation's name
RECIPES = ("topk", "dgc", "dragonn", "ok-topk", "union")


class Encode:
    """The timed part of a recipe's steps; `between` is the rest of them."""

    def __init__(self, pipeline: Pipeline, i: Inputs) -> None:
        self.pipeline, self.inputs, self.grad = pipeline, i, i.x.clone()
        self.state = pipeline.init(TensorSpec("gradient", i.n, i.x.dtype, i.device))
        self.comm, self.steps, self.draw = GroupCommunicator(), 0, random.Random(0)
        self.steady = pipeline.is_steady(i.device)
        self.bad = torch.zeros((), dtype=torch.int32, device=i.device) if self.steady else None
        self.prepared: Prepared | None = None

    def between(self) -> None:
        """Finish the step, and have a gradient for the next."""
        if self.prepared is not None:
            self.pipeline.complete(self.prepared, self.grad, self.state, self._context())
            self.steps += 1
        # The same numbers, turned round: as good as new ones, at the price of a copy.
        first = self.draw.randrange(self.inputs.n)
        torch.cat((self.inputs.x[first:], self.inputs.x[:first]), out=self.grad)

    def __call__(self) -> Prepared:
        self.prepared = self.pipeline.prepare(self.grad, self.state, self._context())
        return self.prepared

    def _context(self) -> StepContext:
        return StepContext(
            "gradient", self.steps, seed=0, comm=self.comm, steady=self.steady, bad=self.bad
        )


def _encode(name: str) -> Callable[[Inputs], Work]:
    return lambda i: Encode(recipe(name, density=i.density), i)


def _bytes(i: Inputs) -> int:
    return 12 * i.n


ENCODE = tuple(Op(f"encode {name}", WHOLE, "rmw", _bytes, _encode(name)) for name in RECIPES)
