"""Which tensors travel together, and when each is ready: the backward pass as DDP sees it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

Shape = tuple[int, ...]
BUCKET_BYTES, FIRST_BUCKET_BYTES = 25 * 2**20, 2**20  # DDP's defaults
FORWARD = 1 / 3  # of a step's compute: the backward pass has twice as many products


@dataclass(frozen=True, slots=True)
class PlannedUnit:
    """Tensors of one selection; `ready` is a share of the step's compute time."""

    names: tuple[str, ...]
    numel: int
    ready: float
    bypassed: bool = False  # small tensors, fused and sent dense
    shapes: tuple[Shape, ...] = ()
    past: tuple[int, ...] = ()  # sizes of small tensors that travel whole in its payload


def units_of(
    shapes: Mapping[str, Shape],
    unit: str,
    bypass: int,
    work: Mapping[str, float] | None = None,
    joins: bool = False,
    only: Collection[str] | None = None,
) -> list[PlannedUnit]:
    """The units of a model in the order of the exchange.

    Gradients are ready from the last tensor to the first, each after its share of the backward
    pass: by `work`, where it is known, else by elements. DDP hands them over by buckets; small
    tensors, and all if the model is one unit, wait for the last bucket (`BackwardPass`). Where they
    may share a payload (`joins`), a bucket is never split, and small tensors travel whole with it,
    or dense if it has no others. `only` these tensors are planned, where the others go by another
    recipe.
    """
    small = bypass if joins else 0
    if joins:
        unit, bypass = "model" if unit == "model" else "bucket", 0
    sizes = {name: prod(shape) for name, shape in shapes.items()}
    buckets = list(_buckets(sizes, work or sizes))
    mine = sizes if only is None else {name: sizes[name] for name in only}
    waiting = {n: s for n, s in mine.items() if unit == "model" or s <= bypass}

    def planned(names: Sequence[str], ready: float, bypassed: bool = False) -> PlannedUnit:
        own = tuple(shapes[name] for name in names)
        numel, past = sum(map(prod, own)), tuple(s for s in map(prod, own) if s <= small)
        if len(past) == len(names):
            bypassed, past = True, ()
        return PlannedUnit(tuple(names), numel, ready, bypassed, own, past)

    units = []
    for names, ready in buckets:
        now = [name for name in names if name in mine and name not in waiting]
        groups = [[name] for name in now] if unit == "tensor" else [now] if now else []
        units += [planned(group, ready) for group in groups]
    for bypassed in (False, True):
        last = [n for n in waiting if (sizes[n] <= bypass) == bypassed]
        if last:
            units.append(planned(last, 1.0, bypassed))
    return units


def _buckets(
    sizes: Mapping[str, int], work: Mapping[str, float]
) -> Iterator[tuple[list[str], float]]:
    """Names from last to first, cut as DDP does after the first step, and when each is full."""
    total, done = sum(work.values()) or 1.0, 0.0
    names: list[str] = []
    filled, limit = 0, FIRST_BUCKET_BYTES
    for name in reversed(list(sizes)):
        names.append(name)
        done += work.get(name, 0.0)
        filled += 4 * sizes[name]
        if filled >= limit:
            yield names, FORWARD + (1 - FORWARD) * done / total
            names, filled, limit = [], 0, BUCKET_BYTES
    if names:
        yield names, 1.0
