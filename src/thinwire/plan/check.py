"""Predicted steps beside measured ones: how far off the cost model is.

Measured are rows of `thinwire bench train --device …`: real models × recipes × rates. The compute
is that of the same run. The network is a calibration's (`thinwire doctor`, run over the same
links), the one whose rate is nearest; without any, it is what the run's own dense steps show.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log
from statistics import median

import torch

from thinwire.bench.peers import BASELINE
from thinwire.cookbook import RECIPES, at_density, recipe
from thinwire.cost.calibration import Calibration
from thinwire.cost.estimate import Speed, estimated_costs
from thinwire.cost.network import Link, Network
from thinwire.cost.predict import predict
from thinwire.errors import RecipeError, ThinwireError
from thinwire.pipeline import Pipeline
from thinwire.report.steps import COMPUTE
from thinwire.results.file import Row
from thinwire.workloads.real import REAL
from thinwire.workloads.shapes import Shape

HEADERS = 0.95  # of a link's rate: what Ethernet, IP and TCP leave
NEAR = 0.15  # a calibration over links of another rate tells latencies, not this rate
PEERS = {BASELINE: "dense", "torch-bf16": "bf16", "torch-fp16": "fp16"}
H200 = Speed(read=4 / 3.5e12, entry=32 / 3.5e12, call=5e-6)
ALPHA = {"cuda": 4e-5, "cpu": 2e-4}  # seconds a message, through the kernel
CROWDED = 1.5  # times as long as in a ring: messages from all to one port (docs/papers/few-bits.md)
HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Place:
    """Rows that were measured over the same links."""

    workers: int
    rate: float | None  # Mbit/s


def compare(rows: Iterable[Row], calibrations: Sequence[Calibration]) -> list[Row]:
    """A row for each that was measured and can be predicted, with the relative `error`."""
    measured = [row for row in rows if _is_measured(row)]
    if not measured:
        raise ThinwireError("no measured steps: these are not rows of bench train --device")
    compute = {
        (row["workers"], row["model"]): row["step_seconds"]
        for row in measured
        if row["recipe"] == COMPUTE
    }
    dense = {
        (Place(row["workers"], row["rate"]), row["model"]): row["step_seconds"]
        for row in measured
        if row["recipe"] == BASELINE
    }
    compared = []
    for row in measured:
        pipeline = _pipeline(row)
        alone = compute.get((row["workers"], row["model"]))
        if pipeline is None or alone is None:
            continue
        place = Place(row["workers"], row["rate"])
        reference = dense.get((place, row["model"]))
        if not calibrations and (reference is None or row["recipe"] == BASELINE):
            continue  # the network was found from this very step
        if calibrations:
            network = nearest(calibrations, place.rate)
        else:
            assert reference is not None
            network = shown_by_dense(reference, alone, row["model"], place.workers, row["device"])
        speed = next((c.speed for c in calibrations if c.speed is not None), shared(place.workers))
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
    known = min(calibrations, key=lambda c: abs(log(_ring(c).beta / beta)))
    if abs(_ring(known).beta / beta - 1) <= NEAR:
        return known.network
    link, ring = known.network.link, _ring(known)
    return replace(known.network, link=replace(link, beta=beta), ring=replace(ring, beta=beta))


def shown_by_dense(
    seconds: float, compute: float, model: str, workers: int, device: str
) -> Network:
    """The network over which a dense step takes so long."""

    def network(beta: float) -> Network:
        ring = Link(ALPHA[device], beta)
        if device != "cuda":
            return Network(ring, ring)
        return Network(replace(ring, beta=CROWDED * beta), ring, backend="nccl")

    def step(beta: float) -> float:
        return _step(recipe("dense"), model, workers, network(beta), shared(workers), compute)

    return network(_inverse(step, seconds, high=1e-6))


def shared(ranks: int) -> Speed:
    """Of a card that the ranks of a bench share: each has its part of the bandwidth."""
    return replace(H200, read=ranks * H200.read, entry=ranks * H200.entry)


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
    costs = estimated_costs(pipeline.alternatives, device, speed)
    return predict(pipeline, _shapes(model), workers, network, costs, compute=compute).seconds


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
