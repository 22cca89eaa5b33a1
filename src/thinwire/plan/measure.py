"""What `plan` and `doctor` measure: this machine's devices, and the network between ranks."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from thinwire.comm import GroupCommunicator, Nodes, Traffic
from thinwire.cookbook import at_density
from thinwire.cost.calibration import Calibration, Tell, calibrate, say_nothing
from thinwire.cost.curves import Costs
from thinwire.cost.wire_size import alone
from thinwire.errors import ThinwireError
from thinwire.lab import Lab
from thinwire.lab.ranks import Workers
from thinwire.pipeline import Pipeline
from thinwire.plan.local import pipelines

TARGET = "thinwire.plan.measure:measure"

Case = dict[str, Any]
"""What ranks are asked for: `recipes`, `density`, `node_size`, `device`, and `refresh`."""


def candidates(names: Iterable[str], density: float) -> dict[str, Pipeline]:
    """The recipes by name; dense, which all are compared with, is always one."""
    return {name: at_density(name, density) for name in dict.fromkeys(("dense", *names))}


def chosen_device(name: str, others: Sequence[str] = ()) -> torch.device:
    """`auto` is a GPU where there is one; a command may take `others`, which are no devices."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        known = ", ".join(("auto", "cpu", "cuda", *others))
        raise ThinwireError(f"device={name!r} must be one of {known}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ThinwireError("device='cuda': there is none here; take cpu or auto")
    return torch.device(name)


def device_costs(
    recipes: Iterable[Pipeline], device: torch.device, refresh: bool, tell: Tell = say_nothing
) -> Costs:
    """What selecting and coding take on this machine, measured once and kept."""
    return calibrate(alone(), list(recipes), device, refresh=refresh, tell=tell).costs


def measure_under_torchrun(
    case: Case, device: torch.device, tell: Tell = say_nothing
) -> Calibration:
    """This process is a rank of a cluster that torchrun started."""
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        return calibrate_group(case, device, tell)
    finally:
        dist.destroy_process_group()


def measure_on_loopback(
    case: Case, workers: int, device: torch.device, tell: Tell = say_nothing
) -> Calibration:
    """Processes on this machine, started for it; on GPUs they share the cards that there are."""
    on_gpu = device.type == "cuda"
    tell(f"starting {workers} workers")
    with Lab(workers, loopback=True, gpu=on_gpu) as lab:
        ranks = Workers(lab, workers, TARGET, "cuda" if on_gpu else "cpu")
        answers = ranks.run(case | {"device": device.type}, lambda note="": tell(note))
    return Calibration.from_dict(answers[0]["calibration"])


def measure(case: Case, rank: int, report_step: Tell) -> dict[str, Any]:
    """What each of these processes runs, as a rank of `lab.ranks`."""
    device = torch.device(case["device"])
    return {"calibration": calibrate_group(case, device, report_step).to_dict()}


def calibrate_group(case: Case, device: torch.device, tell: Tell = say_nothing) -> Calibration:
    """Network and devices of the default process group; for local steps, too."""
    comm, node_size = GroupCommunicator(), case["node_size"]
    nodes = Nodes(None, node_size, None, Traffic()) if node_size > 1 else None
    recipes = [*candidates(case["recipes"], case["density"]).values(), *pipelines().values()]
    try:
        return calibrate(comm, recipes, device, nodes=nodes, refresh=case["refresh"], tell=tell)
    finally:
        if nodes is not None:
            nodes.close()
        comm.close()


def backend_of(device: torch.device | None) -> str:
    """What ranks with such devices exchange by."""
    return "nccl" if device is not None and device.type == "cuda" else "gloo"
