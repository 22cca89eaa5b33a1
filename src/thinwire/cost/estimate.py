"""What a recipe's work takes on a device, estimated from how fast the device reads.

`curves` measures a recipe in about a second. This takes milliseconds for all recipes together, and
is good enough to say which of them are worth a trial.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch

from thinwire.codec import Pair
from thinwire.collective import FewBits, LowRank
from thinwire.collective._factoring import factoring
from thinwire.cost.buckets import Shape
from thinwire.cost.curves import Costs, Curve, key_of
from thinwire.cost.probe import agreed
from thinwire.feedback import NoFeedback
from thinwire.kernels.max_abs import max_abs
from thinwire.pipeline import Pipeline
from thinwire.sparsify import BlockTopK, Everything, ReusedThreshold
from thinwire.types import Communicator

READ = {"cpu": 1 << 21, "cuda": 1 << 25}  # elements: enough to leave the caches
MULTIPLIED = {"cpu": 1 << 18, "cuda": 1 << 25}  # of them, as a matrix, with a factor
SIDE, RANK = 1 << 10, 64  # of that factor
PRODUCTS = 4  # of low rank: two factors, what comes of their sums, and what of it is this rank's
CALLS = 20
CPU_ENTRY, CPU_CALL = 4e-9, 1e-4  # seconds; a device's follow from its bandwidth and launches
ASKING = 40  # calls: what it takes to wait for a device and ask it something
GPU_ENTRY = 8  # reads: an entry moves 32 bytes, scattered


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds to read an element in a row, to move a selected entry, to call a kernel, and for one
    multiplication and addition of a matrix product.
    """

    read: float
    entry: float
    call: float
    product: float = 0.0


def measure_speed(
    comm: Communicator, device: torch.device, clock: Callable[[], float] = time.perf_counter
) -> Speed:
    """Of the device, in a few milliseconds; the same numbers on every rank."""
    values = torch.ones(READ[device.type], device=device)
    max_abs(values)  # compiles
    once = min(_timed(lambda: max_abs(values), device, clock) for _ in range(3))
    matrix = values[: MULTIPLIED[device.type]].view(-1, SIDE)
    factor = torch.ones(SIDE, RANK, device=device)
    torch.mm(matrix, factor)  # loads the library for it
    multiplied = min(_timed(lambda: torch.mm(matrix, factor), device, clock) for _ in range(3))
    read, product = agreed(comm, [once / values.numel(), multiplied / (matrix.numel() * RANK)])
    if device.type != "cuda":
        return Speed(read, CPU_ENTRY, CPU_CALL, product)
    few = values[:1]
    calls = _timed(lambda: [few.add_(1) for _ in range(CALLS)], device, clock)
    (call,) = agreed(comm, [calls / CALLS])
    return Speed(read, GPU_ENTRY * read, call, product)


def estimated_costs(
    recipes: Iterable[Pipeline], device: torch.device, speed: Speed, shapes: Sequence[Shape] = ()
) -> Costs:
    """Curves of all recipes, as `curves` would have measured them on tensors of these `shapes`."""
    curves = {}
    for recipe in recipes:
        asks = device.type == "cuda" and not recipe.is_steady(device)
        slower = replace(speed, call=ASKING * speed.call) if asks else speed
        curves[key_of(recipe)] = _curves(recipe, slower, tuple(shapes))
    return Costs(str(device), curves, 0.5)


def _curves(recipe: Pipeline, speed: Speed, shapes: tuple[Shape, ...]) -> dict[str, Curve]:
    """In reads per element, moves per entry and calls; the factors are of measured curves."""

    def curve(reads: float, moves: float, calls: float, products: float = 0.0) -> Curve:
        each = reads * speed.read + products * speed.product
        return Curve(each, moves * speed.entry, calls * speed.call)

    sparsifier, keeps = recipe.sparsifier, not isinstance(recipe.feedback, NoFeedback)
    if isinstance(recipe.collective, LowRank):  # by each factor once, and to settle and to write
        half = PRODUCTS / 2 * _mean_rank(shapes, recipe.collective.rank)
        factors = {"encode": curve(2, 0, 30, half), "decode": curve(3, 0, 15, half)}
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


def _mean_rank(shapes: tuple[Shape, ...], rank: float) -> float:
    """Columns of a factor, the mean over all elements; none for those that travel as they are."""
    plan = factoring(shapes, rank)
    rows = sum(group.where.count * group.where.rows for group in plan.groups)
    thin = sum(map(prod, shapes)) - plan.whole_size
    return plan.left_size / rows * thin / (thin + plan.whole_size) if rows else 0.0


def _timed(work: Callable[[], object], device: torch.device, clock: Callable[[], float]) -> float:
    begin = clock()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - begin
