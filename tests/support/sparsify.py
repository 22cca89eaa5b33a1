"""What the sparsifier tests share: a step without a network, and gradients of many shapes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from thinwire.types import Communicator, Sparse, Sparsifier, StepContext, TensorSpec

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@dataclass
class Place:
    """A rank among ranks, with no network behind it: sparsifiers must not need one."""

    rank: int = 0
    size: int = 4


def at(
    step: int = 0, *, rank: int = 0, seed: int = 7, tensor: str = "w", density: float | None = None
) -> StepContext:
    return StepContext(tensor, step, seed, cast(Communicator, Place(rank)), density)


def spec_of(x: Tensor) -> TensorSpec:
    return TensorSpec("w", x.numel(), x.dtype, x.device)


def select(sparsifier: Sparsifier, x: Tensor, ctx: StepContext | None = None) -> Sparse:
    """One selection with fresh state, as elements."""
    chosen = sparsifier.select(x, sparsifier.init(spec_of(x)), ctx or at())
    if isinstance(chosen, Tensor):
        return Sparse(torch.arange(x.numel(), device=x.device), chosen, x.numel())
    return chosen


def _normal(n: int, g: torch.Generator) -> Tensor:
    return torch.randn(n, generator=g, dtype=torch.float64)


def _with(x: Tensor, value: float, share: float, g: torch.Generator) -> Tensor:
    """`x` with about `share` of it, and at least one element, set to `value`."""
    n = x.numel()
    if n:
        x[torch.randint(n, (max(1, int(share * n)),), generator=g)] = value
    return x


DISTRIBUTIONS: dict[str, Callable[[int, torch.Generator], Tensor]] = {
    "normal": _normal,
    "shifted": lambda n, g: _normal(n, g) - 20,
    "uniform": lambda n, g: torch.rand(n, generator=g, dtype=torch.float64) - 0.5,
    "laplace": lambda n, g: _normal(n, g).sign() * torch.empty(n).exponential_(generator=g),
    "cauchy": lambda n, g: (_normal(n, g) / _normal(n, g)).clamp(-1e30, 1e30),
    "outliers": lambda n, g: _with(_normal(n, g), 1e30, 1e-4, g),
    "peaked": lambda n, g: _normal(n, g) ** 9,
    "zeros": lambda n, g: torch.zeros(n, dtype=torch.float64),
    "constant": lambda n, g: torch.full((n,), -3.0, dtype=torch.float64),
    "one-hot": lambda n, g: _with(torch.zeros(n, dtype=torch.float64), -2.0, 0.0, g),
    "mostly-zero": lambda n, g: _with(torch.zeros(n, dtype=torch.float64), 1.5, 0.003, g),
    "ties": lambda n, g: torch.randint(-2, 3, (n,), generator=g).double(),
    "denormal": lambda n, g: _normal(n, g) * 1e-43,
    "periodic": lambda n, g: _normal(n, g) * (1 + torch.arange(n) % 64 // 63 * 50),
    "ramp": lambda n, g: torch.arange(n, dtype=torch.float64) / max(1, n),
}


def draw(
    distribution: str,
    n: int,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> Tensor:
    made = DISTRIBUTIONS[distribution](n, torch.Generator().manual_seed(seed))
    return made.to(device, dtype)


def left_out(x: Tensor, chosen: Sparse) -> Tensor:
    """Magnitudes of what was not chosen."""
    rest = torch.ones(x.numel(), dtype=torch.bool, device=x.device)
    rest[chosen.indices] = False
    return x[rest].abs()
