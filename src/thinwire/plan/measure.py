"""What is measured: devices alone, and, as a rank of `thinwire doctor`, networks together."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from thinwire.cli.plan_options import pipelines
from thinwire.comm import GroupCommunicator, Nodes, Traffic
from thinwire.cost.calibration import Calibration, calibrate
from thinwire.cost.curves import Costs
from thinwire.cost.wire_size import alone
from thinwire.pipeline import Pipeline


def device_costs(recipes: Iterable[Pipeline], device: torch.device, refresh: bool) -> Costs:
    """What selecting and coding take on this machine, measured once and kept."""
    return calibrate(alone(), list(recipes), device, refresh=refresh).costs


def measure(case: dict[str, Any], rank: int, report_step: Callable[[], None]) -> dict[str, Any]:
    """As a rank of `bench.workers`."""
    return {"calibration": calibration(case, torch.device("cpu")).to_dict()}


def calibration(case: dict[str, Any], device: torch.device) -> Calibration:
    """Of the world's group, which is up."""
    comm, node_size = GroupCommunicator(), case["node_size"]
    nodes = Nodes(None, node_size, None, Traffic()) if node_size > 1 else None
    recipes = list(pipelines(case["recipes"], case["density"]).values())
    try:
        return calibrate(comm, recipes, device, nodes=nodes, refresh=case["refresh"])
    finally:
        if nodes is not None:
            nodes.close()
        comm.close()
