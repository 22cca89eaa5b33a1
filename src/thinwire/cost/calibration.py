"""Everything a choice of recipe is made from, measured, and kept where it stays: `calibrate`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import torch

from thinwire.comm import GroupCommunicator, Nodes
from thinwire.cost import cache
from thinwire.cost.curves import WORK, Costs, Curve, key_of, measure_curves
from thinwire.cost.estimate import Speed, measure_speed
from thinwire.cost.network import Network
from thinwire.cost.patterns import check_modelled
from thinwire.cost.probe import agreed, measure_network
from thinwire.pipeline import Pipeline

Tell = Callable[[str], None]
"""Is told what is being measured."""


def say_nothing(what: str) -> None:
    """Nobody is waiting for it."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The network of a group and the costs of recipes on its devices, as plain numbers."""

    network: Network
    costs: Costs
    speed: Speed | None = None  # of the device, for recipes that were not measured

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        speed = None if self.speed is None else asdict(self.speed)
        return {"network": self.network.to_dict(), "costs": self.costs.to_dict(), "speed": speed}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """What `to_dict` was called on."""
        speed = None if plain.get("speed") is None else Speed(**plain["speed"])
        return cls(Network.from_dict(plain["network"]), Costs.from_dict(plain["costs"]), speed)


def calibrate(
    comm: GroupCommunicator,
    recipes: Sequence[Pipeline],
    device: torch.device,
    *,
    nodes: Nodes | None = None,
    refresh: bool = False,
    network: Network | None = None,
    clock: Callable[[], float] = time.perf_counter,
    tell: Tell = say_nothing,
) -> Calibration:
    """Measure the network of this group, and what is not yet known of these recipes on its devices;
    identical on all ranks.

    Costs are kept on disk by hardware, world size and versions (`cache`), and `refresh` measures
    them anew. The network is measured each time, unless one comes that just was: the same machines
    may have another link today. All ranks call it together. It takes a few seconds for the network
    and about one for a recipe.
    """
    pipelines = [pipeline for recipe in recipes for pipeline in recipe.alternatives]
    for pipeline in pipelines:
        check_modelled(pipeline.collective)
    identity = cache.identity_of(device, comm.size, comm.backend)
    identity["node_size"] = 1 if nodes is None else nodes.inside.size
    kept = None if refresh else cache.read_agreed(identity, comm)
    known = None if kept is None else _understood(kept)
    if network is None:
        if comm.size > 1:
            tell("the network")
        network = measure_network(comm, device, nodes, clock)
    if known is None:
        known = Calibration(network, Costs(str(device)), measure_speed(comm, device, clock))
    known = replace(known, network=network)
    missing = {key_of(p): p for p in pipelines if key_of(p) not in known.costs.curves}
    if kept is not None and not missing:
        return known
    measured = {}
    for place, (key, pipeline) in enumerate(missing.items(), 1):
        tell(f"recipe {place} of {len(missing)} on {device}")
        measured[key] = _agreed_curves(pipeline, device, comm, clock)
    costs = replace(known.costs, curves=known.costs.curves | measured)
    calibration = replace(known, costs=costs)
    cache.write(identity, calibration.to_dict())
    return calibration


def _agreed_curves(
    pipeline: Pipeline, device: torch.device, comm: GroupCommunicator, clock: Callable[[], float]
) -> dict[str, Curve]:
    """All ranks measure at the same time, as they work at the same time in a step."""
    mine = measure_curves(pipeline, device, clock=clock)
    numbers = [n for work in WORK for n in (mine[work].a, mine[work].b, mine[work].c)]
    same = agreed(comm, numbers)
    return {work: Curve(*same[3 * i : 3 * i + 3]) for i, work in enumerate(WORK)}


def _understood(kept: dict[str, Any]) -> Calibration | None:
    """What was kept, if it can still be read; all ranks have the same, so all agree."""
    try:
        return Calibration.from_dict(kept)
    except (KeyError, TypeError, ValueError):
        return None
