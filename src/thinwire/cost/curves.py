"""How long a recipe works on a tensor besides the network: measured, as a·n + b·k + c by phase."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from thinwire.cost.wire_size import alone
from thinwire.kernels.max_abs import max_abs
from thinwire.pipeline import Pipeline
from thinwire.types import StepContext, TensorSpec

SIZES = (1 << 14, 1 << 20, 1 << 17)  # elements; the third if there is time
GPU_SIZES = (1 << 18, 1 << 24, 1 << 21)  # smaller ones are launches alone
FACTORS = (1.0, 4.0)  # densities measured, as multiples of the recipe's own
STEPS = 4  # of which the first is not counted: it compiles and allocates
BUDGET = 1.5  # seconds for one recipe, after which no third size is begun
WORK = ("local", "encode", "decode")
_PHASES = {"feedback": "local", "select": "local", "encode": "encode", "decode": "decode"}


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds: a for each element, b for each selected entry, c in any case; none is negative."""

    a: float = 0.0
    b: float = 0.0
    c: float = 0.0

    def seconds(self, n: float, k: float, calls: int = 1) -> float:
        """For n elements of which k are selected, in so many calls."""
        return self.a * n + self.b * k + self.c * calls

    @classmethod
    def fit(cls, points: Sequence[tuple[float, float, float]]) -> Self:
        """Least squares of relative errors over (n, k, seconds); what would be negative is zero."""
        rows = np.array([(n, k, 1.0) for n, k, _ in points])
        seconds = np.array([max(s, 1e-9) for _, _, s in points])
        rows = rows / seconds[:, None]
        free = [0, 1, 2]
        while free:
            fitted = np.linalg.lstsq(rows[:, free], np.ones(len(rows)), rcond=None)[0]
            if (fitted >= 0).all():
                solution = np.zeros(3)
                solution[free] = fitted
                return cls(*map(float, solution))
            free.pop(int(np.argmin(fitted * rows[:, free].mean(0))))
        return cls()


@dataclass(frozen=True, slots=True)
class Costs:
    """The curves of recipes on one device, by `key_of` the recipe, and how well they fitted.

    "local" is feedback and selection, "encode" what a rank encodes of its own selection, "decode"
    the same entries decoded and added up. The last two are scaled by how much more is encoded and
    decoded in an exchange between more ranks.
    """

    device: str
    curves: dict[str, dict[str, Curve]] = field(default_factory=dict)
    spread: float = 0.2  # typical relative error of a prediction

    def of(self, recipe: Pipeline) -> Mapping[str, Curve] | None:
        """The recipe's curves, if it was measured."""
        return self.curves.get(key_of(recipe))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """What `to_dict` was called on."""
        curves = {
            recipe: {work: Curve(**curve) for work, curve in phases.items()}
            for recipe, phases in plain["curves"].items()
        }
        return cls(plain["device"], curves, plain["spread"])


def key_of(recipe: Pipeline) -> str:
    """What the time of a recipe depends on: its pieces, not how tensors are grouped into units."""
    pieces = (recipe.sparsifier, recipe.codec, recipe.collective, recipe.feedback)
    return " | ".join(map(repr, pieces))


def measure_curves(
    recipe: Pipeline,
    device: torch.device,
    sizes: Sequence[int] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Curve]:
    """Run the recipe alone (P = 1) on a few sizes and densities, and fit each kind of work."""
    sizes = sizes or (GPU_SIZES if device.type == "cuda" else SIZES)
    points: dict[str, list[tuple[float, float, float]]] = {work: [] for work in WORK}
    own = recipe.sparsifier.density
    densities = [None] if own is None else sorted({min(1.0, own * f) for f in FACTORS})
    _medians(recipe, sizes[0], own, device, clock)  # compiles what is not compiled yet
    started = clock()
    for place, n in enumerate(sizes):
        if place > 1 and clock() - started > BUDGET:
            break  # two sizes tell a slope from a constant
        for density in densities:
            spent = _medians(recipe, n, density, device, clock)
            k = n if density is None else density * n
            for work, seconds in spent.items():
                points[work].append((n, k, seconds))
    return {work: Curve.fit(measured) for work, measured in points.items()}


def _medians(
    recipe: Pipeline,
    n: int,
    density: float | None,
    device: torch.device,
    clock: Callable[[], float],
) -> dict[str, float]:
    """Seconds by kind of work, the median over the steps."""
    grad = torch.randn(n, generator=torch.Generator().manual_seed(n)).to(device)
    shapes = (_square(n),)
    state = recipe.init(TensorSpec("calibration", n, grad.dtype, device, shapes))
    comm, watch, steady = alone(), Stopwatch(device, clock), recipe.is_steady(device)
    queued: dict[str, Any] = {}
    if steady:  # as the engine does on a GPU: nothing asks the host
        bad = torch.zeros((), dtype=torch.int32, device=device)
        queued = {"steady": True, "bad": bad, "later": _forget}
    for step in range(STEPS):
        flat = grad.clone()
        watch.begin_step()
        ctx = StepContext(
            tensor="calibration",
            step=step,
            seed=0,
            comm=comm,
            density=density,
            shapes=shapes,
            phase=watch.phase,
            **queued,
        )
        if not steady:
            with ctx.phase("feedback"):
                max_abs(flat)  # the step looks for NaN and Inf first
        recipe.step(flat, state, ctx)
    taken = watch.read()[1:]
    return {work: median(spent[work] for spent in taken) for work in WORK}


def _square(n: int) -> tuple[int, int]:
    """A matrix of so many elements; of a power of two, one as square as can be."""
    rows = min(n & -n, 1 << (n.bit_length() - 1) // 2)
    return rows, n // rows


def _forget(number: Tensor, then: Callable[[int], None]) -> None:
    """Nobody reads what calibration finds out."""


class Stopwatch:
    """Seconds by kind of work, step by step; on a GPU by events, so that the host runs ahead."""

    def __init__(self, device: torch.device, clock: Callable[[], float]) -> None:
        self._on_gpu, self._clock = device.type == "cuda", clock
        self._steps: list[list[tuple[str, Any, Any]]] = []

    def begin_step(self) -> None:
        """What follows is of a new step."""
        self._steps.append([])

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside."""
        begin = self._mark()
        yield
        if name in _PHASES:
            self._steps[-1].append((_PHASES[name], begin, self._mark()))

    def read(self) -> list[dict[str, float]]:
        """What each step took. Waits for the device."""
        if self._on_gpu:
            torch.cuda.synchronize()
        taken = []
        for step in self._steps:
            spent = dict.fromkeys(WORK, 0.0)
            for work, begin, end in step:
                spent[work] += begin.elapsed_time(end) / 1000 if self._on_gpu else end - begin
            taken.append(spent)
        return taken

    def _mark(self) -> Any:
        if not self._on_gpu:
            return self._clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
