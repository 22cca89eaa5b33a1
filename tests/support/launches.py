"""What a step launches on a GPU, counted on the CPU: kernels of Triton, and operations of PyTorch.

Steps take the GPU's path in Triton's interpreter. Views, new memory that nobody fills, and
exchanges are no kernels; each other operation of PyTorch counts as one.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from thinwire.pipeline import Pipeline
from thinwire.units.unit import Unit

CUDA = torch.device("cuda")
NO_KERNELS = ("empty", "new_empty", "detach", "lift_fresh", "set_", "resize_", "alias")


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
        with torch.utils._python_dispatch._disable_current_modes():
            return run(self, *arguments, **settings)

    with patch.object(InterpretedFunction, "run", counted), _Operations(counts):
        yield counts
