"""What a recipe does before the network, whole: what `select` in `handle.stats()` is held against.

Unlike the kernels it is made of, it is measured from an idle device, as a step begins on one: the
check for NaN has just made the host wait. So its launches count.
"""

from collections.abc import Callable
from itertools import count

from thinwire.bench.kernels_ops import Inputs, Op, Work
from thinwire.collective import GroupCommunicator
from thinwire.recipes import recipe
from thinwire.types import StepContext, TensorSpec

RECIPES = ("topk", "dgc", "dragonn", "ok-topk", "union")


def _encode(name: str) -> Callable[[Inputs], Work]:
    def prepare(i: Inputs) -> Work:
        pipeline, grad = recipe(name, density=i.density), i.grad.clone()
        state = pipeline.init(TensorSpec(name, i.n, grad.dtype, i.device))
        state["feedback"]["residual"].copy_(i.x)
        comm, steps = GroupCommunicator(), count()

        def work() -> object:
            ctx = StepContext(tensor=name, step=next(steps), seed=0, comm=comm, out=grad)
            return pipeline.prepare(grad, state, ctx)

        return work

    return prepare


def _bytes(i: Inputs) -> int:
    return 12 * i.n


ENCODE = tuple(
    Op(f"encode {name}", "recipe", "rmw", _bytes, _encode(name), from_idle=True) for name in RECIPES
)
