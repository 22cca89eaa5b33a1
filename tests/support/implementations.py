"""Where each implementation of a kernel can be tested on this machine.

Triton's kernels run on the GPU where there is one, else in Triton's interpreter on the CPU. Triton
decides between the two when it is imported: the variable is set here, before.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from support.interpreter import hasten
from thinwire.kernels import Implementation, _threads, use

T = TypeVar("T")

HAS_GPU = torch.cuda.is_available()


@dataclass(frozen=True)
class Case:
    """An implementation, and where it is tested: a device, or a number of CPU threads.

    With several threads, pieces are of few elements, so that small tensors have several.
    """

    implementation: Implementation
    device: str = "cpu"
    threads: int = 1

    @contextmanager
    def chosen(self) -> Iterator[None]:
        """Within the block, the public functions run as this case says."""
        if self.interpreted:
            hasten()
        before = torch.get_num_threads()
        least_piece = 64 if self.threads > 1 else _threads.LEAST_PIECE
        torch.set_num_threads(self.threads)
        try:
            with use(self.implementation), patch.object(_threads, "LEAST_PIECE", least_piece):
                yield
        finally:
            torch.set_num_threads(before)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the public function with this implementation, its tensors moved to the device."""
        with self.chosen():
            return function(*(self.place(argument) for argument in arguments))

    @property
    def interpreted(self) -> bool:
        """Whether Triton's interpreter runs the kernel: a thousand times slower."""
        return self.implementation == "triton" and self.device == "cpu"

    def some(self, examples: Sequence[T]) -> Sequence[T]:
        """All of the examples, or every fourth for the interpreter."""
        return examples[::4] if self.interpreted else examples

    def place(self, argument: Any) -> Any:
        """On the device, if it is a tensor."""
        return argument.to(self.device) if isinstance(argument, Tensor) else argument


def cases(package: str) -> list[Any]:
    """The parameters for tests of all implementations of `thinwire.kernels.<package>`."""
    needed = ("triton", f"thinwire.kernels.{package}.triton")
    missing = [name for name in needed if find_spec(name) is None]
    skipped = [pytest.mark.skip(reason=f"there is no {missing[0]}")] if missing else []
    return [
        pytest.param(Case("reference", "cuda" if HAS_GPU else "cpu"), id="reference"),
        pytest.param(Case("numba"), id="numba"),
        pytest.param(Case("numba", threads=2), id="numba, two threads"),
        pytest.param(Case("numba", threads=5), id="numba, five threads"),
        pytest.param(Case("triton", "cuda" if HAS_GPU else "cpu"), id="triton", marks=skipped),
    ]


def bits(x: Tensor) -> list[int]:
    """The elements as integers, which tell -0.0 from 0.0."""
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.cpu().view(words).tolist()


def normal(numel: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed)).to(dtype)


def awkward(dtype: torch.dtype) -> dict[str, Tensor]:
    """Elements that a selection by magnitude may stumble over; none is NaN."""
    tiny = {torch.float32: 2.0**-149, torch.float64: 2.0**-1074}[dtype]
    ties = torch.tensor([1.0, -1.0, 2.0, -2.0, 0.0, -0.0], dtype=dtype).repeat(83)
    clustered = torch.zeros(1111, dtype=dtype)
    clustered[500:540] = normal(40, dtype) + 100
    return {
        "normal": normal(777, dtype),
        "ties": ties,
        "all equal": torch.full((259,), -0.25, dtype=dtype),
        "all zero": torch.zeros(131, dtype=dtype),
        "negative zeros": -torch.zeros(64, dtype=dtype),
        "denormals": torch.arange(-100, 100).to(dtype) * tiny,
        "infinite": torch.cat((normal(70, dtype), torch.tensor([torch.inf, -torch.inf]).to(dtype))),
        "clustered": clustered,
        "close to each other": 1 + normal(300, dtype) * torch.finfo(dtype).eps,
        "two elements": torch.tensor([0.5, -3.0], dtype=dtype),
    }


def awkward_cases(package: str) -> list[Any]:
    """Every implementation with all awkward elements; for the interpreter only in float32."""
    return [
        pytest.param(case, x, id=f"{parameter.id}, {name}, {dtype}", marks=parameter.marks)
        for parameter in cases(package)
        for case in parameter.values
        for dtype in (torch.float32, torch.float64)
        if not (case.interpreted and dtype == torch.float64)
        for name, x in awkward(dtype).items()
    ]
