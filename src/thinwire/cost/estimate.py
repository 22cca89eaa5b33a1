"""What a recipe's work takes on a device, estimated from how fast the device reads.

`curves` measures a recipe in about a second. This takes milliseconds for all recipes together, and
is good enough to say which of them are worth a trial.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch

from thinwire.codec import Pair
from thinwire.collective import FewBits, LowRank
from thinwire.cost.curves import Costs, Curve, key_of
from thinwire.cost.probe import agreed
from thinwire.feedback import NoFeedback
from thinwire.kernels.max_abs import max_abs
from thinwire.pipeline import Pipeline
from thinwire.sparsify import BlockTopK, Everything, ReusedThreshold
from thinwire.types import Communicator

READ = {"cpu": 1 << 21, "cuda": 1 << 25}  # elements: enough to leave the caches
CALLS = 20
CPU_ENTRY, CPU_CALL = 4e-9, 1e-4  # seconds; a device's follow from its bandwidth and launches
ASKING = 40  # calls: what it takes to wait for a device and ask it something
GPU_ENTRY = 8  # reads: an entry moves 32 bytes, scattered


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds to read an element in a row, to move a selected entry, and to call a kernel."""

    read: float
    entry: float
    call: float


def measure_speed(
    comm: Communicator, device: torch.device, clock: Callable[[], float] = time.perf_counter
) -> Speed:
    """Of the device, in a few milliseconds; the same numbers on every rank."""
    values = torch.ones(READ[device.type], device=device)
    max_abs(values)  # compiles
    once = min(_timed(lambda: max_abs(values), device, clock) for _ in range(3))
    (read,) = agreed(comm, [once / values.numel()])
    if device.type != "cuda":
        return Speed(read, CPU_ENTRY, CPU_CALL)
    few = values[:1]
    calls = _timed(lambda: [few.add_(1) for _ in range(CALLS)], device, clock)
    (call,) = agreed(comm, [calls / CALLS])
    return Speed(read, GPU_ENTRY * read, call)


def estimated_costs(recipes: Iterable[Pipeline], device: torch.device, speed: Speed) -> Costs:
    """Curves of all recipes, as `curves` would have measured them."""
    curves = {}
    for recipe in recipes:
        asks = device.type == "cuda" and not recipe.is_steady(device)
        slower = replace(speed, call=ASKING * speed.call) if asks else speed
        curves[key_of(recipe)] = _curves(recipe, slower)
    return Costs(str(device), curves, 0.5)


def _curves(recipe: Pipeline, speed: Speed) -> dict[str, Curve]:
    """In reads per element, moves per entry and calls; the factors are of measured curves."""

    def curve(reads: float, moves: float, calls: float) -> Curve:
        return Curve(reads * speed.read, moves * speed.entry, calls * speed.call)

    sparsifier, keeps = recipe.sparsifier, not isinstance(recipe.feedback, NoFeedback)
    if isinstance(recipe.collective, LowRank):  # by each factor once, and to settle and to write
        factors = {"encode": curve(2, 0, 30), "decode": curve(3, 0, 15)}
        return {"local": curve(4 if keeps else 1, 0, 1)} | factors
    if isinstance(sparsifier, Everything) and recipe.codec is None:
        rounds = keeps or not recipe.is_plain_sum
        local = curve(4 if keeps else 1, 0, 1)
        if isinstance(recipe.collective, FewBits):  # adds up while it encodes
            return {"local": curve(1, 0, 1), "encode": curve(6, 0, 8), "decode": curve(8, 0, 20)}
        return {"local": local, "encode": curve(2 * rounds, 0, 1), "decode": curve(2, 0, 1)}
    in_one_pass = isinstance(sparsifier, BlockTopK | ReusedThreshold)
    plain = recipe.codec == Pair()
    coded = recipe.codec is not None and not plain
    return {
        "local": curve(3 if in_one_pass else 5, 8, 6),
        "encode": curve(0, 2 if coded else 1, 3),
        "decode": curve(1, 3 if coded else 1, 4),
    }


def _timed(work: Callable[[], object], device: torch.device, clock: Callable[[], float]) -> float:
    begin = clock()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - begin
