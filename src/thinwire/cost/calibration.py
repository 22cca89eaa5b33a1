"""Everything a choice of recipe is made from, measured once and kept: `calibrate`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from thinwire.comm import GroupCommunicator, Nodes
from thinwire.cost import cache
from thinwire.cost.curves import WORK, Chooses, Costs, Curve, Recipe, key_of, measure_curves
from thinwire.cost.network import Network
from thinwire.cost.probe import agreed, measure_network


@dataclass(frozen=True, slots=True)
class Calibration:
    """The network of a group and the costs of recipes on its devices, as plain numbers."""

    network: Network
    costs: Costs

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"network": self.network.to_dict(), "costs": self.costs.to_dict()}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """What `to_dict` was called on."""
        return cls(Network.from_dict(plain["network"]), Costs.from_dict(plain["costs"]))


def calibrate(
    comm: GroupCommunicator,
    recipes: Sequence[Recipe],
    device: torch.device,
    *,
    nodes: Nodes | None = None,
    refresh: bool = False,
    network: Network | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Calibration:
    """Measure what is not yet known of this group and these recipes; identical on all ranks.

    Kept on disk by hardware, world size and versions (`cache`); `refresh` measures all anew, and a
    `network` that was just measured takes the place of one that was kept. All ranks call it
    together. It takes a few seconds for the network and about one for a recipe.
    """
    of = cache.identity(device, comm.size, comm.backend)
    of["node_size"] = 1 if nodes is None else nodes.inside.size
    kept = None if refresh else cache.read_agreed(of, comm)
    known = None if kept is None else _understood(kept)
    if known is None:
        found = network or measure_network(comm, device, nodes, clock)
        known = Calibration(found, Costs(str(device)))
    known = replace(known, network=network or known.network)
    ways = [w for r in recipes for w in (map(r.way, r.labels) if isinstance(r, Chooses) else [r])]
    missing = {key_of(r): r for r in ways if key_of(r) not in known.costs.curves}
    if kept is not None and not missing:
        return known
    measured = {key: _agreed_curves(r, device, comm, clock) for key, r in missing.items()}
    costs = replace(known.costs, curves=known.costs.curves | measured)
    calibration = replace(known, costs=costs)
    cache.write(of, calibration.to_dict())
    return calibration


def _agreed_curves(
    recipe: Recipe, device: torch.device, comm: GroupCommunicator, clock: Callable[[], float]
) -> dict[str, Curve]:
    """All ranks measure at the same time, as they work at the same time in a step."""
    found = measure_curves(recipe, device, clock=clock)
    numbers = [n for work in WORK for n in (found[work].a, found[work].b, found[work].c)]
    same = agreed(comm, numbers)
    return {work: Curve(*same[3 * i : 3 * i + 3]) for i, work in enumerate(WORK)}


def _understood(kept: dict[str, Any]) -> Calibration | None:
    """What was kept, if it can still be read; all ranks have the same, so all agree."""
    try:
        return Calibration.from_dict(kept)
    except (KeyError, TypeError, ValueError):
        return None
