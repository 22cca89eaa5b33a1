"""What a step launches on a GPU, counted on the CPU: kernels of Triton, and operations of PyTorch.

Steps take the GPU's path in Triton's interpreter. Views, new memory that nobody fills, and
exchanges are no kernels; each other operation of PyTorch counts as one.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from thinwire.comm import GroupCommunicator
from thinwire.pipeline import Pipeline
from thinwire.sparsify.topk import ExactOnGpu
from thinwire.units.unit import Unit

CUDA = torch.device("cuda")
EXCHANGES = ("all_reduce", "all_gather_equal", "all_to_all_equal")
NO_KERNELS = (
    "empty",
    "new_empty",
    "detach",
    "lift_fresh",
    "set_",
    "resize_",
    "alias",
    "_unsafe_view",
)


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """What is steady on a GPU is here too."""
    steady, assemble = Pipeline.is_steady, Unit.assemble

    def with_a_flag(*arguments: Any, **settings: Any) -> Unit:
        unit = assemble(*arguments, **settings)
        unit.bad = torch.zeros((), dtype=torch.int32)
        return unit

    with (
        patch.object(Pipeline, "is_steady", lambda p, _: steady(p, CUDA)),
        patch.object(ExactOnGpu, "is_steady", lambda s, _: True),
        patch.object(Unit, "assemble", with_a_flag),
    ):
        yield


class _Operations(TorchDispatchMode):
    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        namespace, _, name = func.name().partition("::")
        base = name.partition(".")[0]
        if namespace == "aten" and not func.is_view and not base.startswith(NO_KERNELS):
            self._counts[base] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def launches() -> Iterator[Counter[str]]:
    """Launches of this thread within the block, by name; those of Triton begin with "triton "."""
    from triton.runtime.interpreter import InterpretedFunction

    counts = Counter[str]()
    run = InterpretedFunction.run

    def counted(self: Any, *arguments: Any, **settings: Any) -> object:
        module = self.fn.__module__.removeprefix("thinwire.kernels.")
        counts[f"triton {module}.{self.fn.__name__}"] += 1
        with _disable_current_modes():
            return run(self, *arguments, **settings)

    with ExitStack() as stack:
        for name in EXCHANGES:
            exchange = _uncounted(getattr(GroupCommunicator, name))
            stack.enter_context(patch.object(GroupCommunicator, name, exchange))
        stack.enter_context(patch.object(InterpretedFunction, "run", counted))
        stack.enter_context(_Operations(counts))
        yield counts


def _uncounted(exchange: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **settings: Any) -> Any:
        with _disable_current_modes():
            return exchange(*arguments, **settings)

    return call
