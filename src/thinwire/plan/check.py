"""Predicted steps beside measured ones: how far off the cost model is.

Measured are rows of `thinwire bench train --device …`: real models × recipes × rates. The compute
is that of the same run. The network is a calibration's (`thinwire doctor`, run over the same
links), the one whose rate is nearest; without any, it is what the run's own dense steps show.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median
from typing import Any

import torch

from thinwire.bench.peers import BASELINE
from thinwire.cookbook import RECIPES, at_density, recipe
from thinwire.cost.calibration import Calibration
from thinwire.cost.estimate import CPU_CALL, CPU_ENTRY, Speed, estimated_costs
from thinwire.cost.network import Link, Network
from thinwire.cost.predict import predict
from thinwire.errors import RecipeError, ThinwireError
from thinwire.pipeline import Pipeline
from thinwire.report.steps import COMPUTE
from thinwire.results.file import Row
from thinwire.workloads.real import REAL
from thinwire.workloads.shapes import MODELS, Shape, multiply_adds

HEADERS = 0.95  # of a link's rate: what Ethernet, IP and TCP leave
NEAR = 0.15  # a calibration over links of another rate tells latencies, not this rate
PEERS = {BASELINE: "dense", "torch-bf16": "bf16", "torch-fp16": "fp16"}
H200 = Speed(read=4 / 3.5e12, entry=32 / 3.5e12, call=5e-6, product=2 / 67e12)
CORE = Speed(read=4 / 1e10, entry=CPU_ENTRY, call=CPU_CALL, product=2 / 5e10)
ALPHA = {"cuda": 4e-5, "cpu": 2e-4}  # seconds a message, through the kernel
# Messages from all to one port take so many times as long as in a ring at 1 Gbit/s, and no longer
# at 10 and 25 (docs/results/all-to-all.log).
CROWDED, CROWDED_BELOW = 1.5, 3e3  # Mbit/s
HALVINGS = 60
Setting = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Over which links, and on what, steps were measured."""

    workers: int
    rate: float | None  # Mbit/s
    device: str

    @property
    def crowded(self) -> float:
        """How many times as long as in a ring messages from all to one port take."""
        return CROWDED if self.rate is not None and self.rate < CROWDED_BELOW else 1.0

    @property
    def speed(self) -> Speed:
        """Of a core; or of a card that all ranks share: each has its part of it."""
        if self.device != "cuda":
            return CORE
        parts = {part: self.workers * getattr(H200, part) for part in ("read", "entry", "product")}
        return replace(H200, **parts)


def compare(rows: Iterable[Row], calibrations: Sequence[Calibration]) -> list[Row]:
    """A row for each that was measured and can be predicted, with the relative `error`."""
    measured = [row for row in rows if _is_measured(row)]
    if not measured:
        raise ThinwireError("no measured steps: these are not rows of bench train --device")
    compute: dict[Setting, float] = {}
    for row in (row for row in measured if row["recipe"] == COMPUTE):
        # Measured more than once it is the least: what disturbs it makes it longer.
        found = compute.get(_setting(row), math.inf)
        compute[_setting(row)] = min(found, row["step_seconds"])
    dense = {
        (_setting(row), row["rate"]): row["step_seconds"]
        for row in measured
        if row["recipe"] == BASELINE
    }
    compared = []
    for row in measured:
        pipeline, alone = _pipeline(row), compute.get(_setting(row))
        reference = dense.get((_setting(row), row["rate"]))
        if pipeline is None or alone is None:
            continue
        if not calibrations and (reference is None or row["recipe"] == BASELINE):
            continue  # the network was found from this very step
        place = Place(row["workers"], row["rate"], row["device"])
        if calibrations:
            network = nearest(calibrations, place.rate)
        else:
            assert reference is not None
            network = shown_by_dense(reference, alone, row["model"], place)
        speed = next((c.speed for c in calibrations if c.speed is not None), place.speed)
        predicted = _step(pipeline, row["model"], place.workers, network, speed, alone)
        compared.append(_compared(row, alone, predicted))
    return compared


def median_error(compared: Sequence[Row]) -> float:
    """Of all rows, without the sign."""
    return float(median(abs(row["error"]) for row in compared))


def nearest(calibrations: Sequence[Calibration], rate: float | None) -> Network:
    """The network of links of this rate: measured there, or else as far as sockets carry it."""
    fastest = min(calibrations, key=lambda c: _ring(c).beta)
    if rate is None:
        return fastest.network
    beta = max(8 / (HEADERS * rate * 1e6), _ring(fastest).beta)
    known = min(calibrations, key=lambda c: abs(math.log(_ring(c).beta / beta)))
    if abs(_ring(known).beta / beta - 1) <= NEAR:
        return known.network
    link, ring = known.network.link, _ring(known)
    return replace(known.network, link=replace(link, beta=beta), ring=replace(ring, beta=beta))


def shown_by_dense(seconds: float, compute: float, model: str, place: Place) -> Network:
    """The network over which a dense step takes so long."""

    def network(beta: float) -> Network:
        ring = Link(ALPHA[place.device], beta)
        if place.device != "cuda":
            return Network(ring, ring)
        return Network(replace(ring, beta=place.crowded * beta), ring, backend="nccl")

    def step(beta: float) -> float:
        return _step(recipe("dense"), model, place.workers, network(beta), place.speed, compute)

    return network(_inverse(step, seconds, high=1e-6))


def _inverse(growing: Callable[[float], float], value: float, high: float) -> float:
    low = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if growing(middle) < value else (low, middle)
    return low


def _step(
    pipeline: Pipeline, model: str, workers: int, network: Network, speed: Speed, compute: float
) -> float:
    device = torch.device("cuda" if network.backend == "nccl" else "cpu")
    shapes = _shapes(model)
    costs = estimated_costs(pipeline.alternatives, device, speed, tuple(shapes.values()))
    # GPT-2's head is the work of its first gradients: it is the embedding, whose own is the last.
    work = multiply_adds(model) if model in MODELS else None
    known = predict(pipeline, shapes, workers, network, costs, compute=compute, work=work)
    return known.seconds


def _setting(row: Row) -> Setting:
    """What rows of one run have in common, of several files that are read together too."""
    return tuple(row.get(field) for field in ("file", "workers", "model", "device", "examples"))


def _compared(row: Row, compute: float, predicted: float) -> Row:
    kept = ("recipe", "model", "workers", "rate", "density", "device")
    return {name: row[name] for name in kept} | {
        "compute_seconds": compute,
        "measured_seconds": row["step_seconds"],
        "predicted_seconds": predicted,
        "error": predicted / row["step_seconds"] - 1,
    }


def _is_measured(row: Row) -> bool:
    fields = {"recipe", "model", "workers", "rate", "density", "device", "step_seconds"}
    return row.keys() >= fields and row["step_seconds"] is not None and row["model"] in REAL


def _pipeline(row: Row) -> Pipeline | None:
    """What was measured, as a recipe; None for what has no cost model here."""
    name: str = PEERS.get(row["recipe"]) or row["recipe"]
    try:
        if name in RECIPES:
            return at_density(name, row["density"])
        return recipe(name)
    except RecipeError:
        return None


def _ring(calibration: Calibration) -> Link:
    return calibration.network.ring or calibration.network.link


@lru_cache
def _shapes(model: str) -> dict[str, Shape]:
    """Parameters in the order of the forward pass; a tied one where it is used first."""
    with torch.device("meta"):
        built = REAL[model].build()
    return {name: tuple(p.shape) for name, p in built.named_parameters()}
