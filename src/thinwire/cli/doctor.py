"""`thinwire doctor`: is this cluster and this model worth compressing?"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.distributed as dist
from typer import Argument, Option

from thinwire.cli.console import activity, plain_console
from thinwire.cli.diagnosis import Findings, answer
from thinwire.cli.options import JsonPath, with_option_groups
from thinwire.cli.parse import split
from thinwire.cli.plan_options import GBPS_HELP, ClusterOptions, Compute
from thinwire.cost.calibration import Calibration
from thinwire.cost.network import Link
from thinwire.errors import ThinwireError
from thinwire.plan.local import pipelines
from thinwire.plan.measure import (
    backend_of,
    calibrate_group,
    chosen_device,
    device_costs,
    measure_on_loopback,
    measure_under_torchrun,
)
from thinwire.plan.models import Model, find_model
from thinwire.plan.observe import Observed, observe
from thinwire.plan.profile import read_profile
from thinwire.results.file import ResultFile

STEPS = 30  # of a user's script
Given = Annotated[
    list[str] | None,
    Argument(help="A known model, or your own, module:function; or a script and its arguments."),
]


@with_option_groups
def doctor(
    model: Given = None,
    *,
    workers: Annotated[
        int, Option(min=2, help="Ranks in all; under torchrun those there are.")
    ] = 4,
    gbps: Annotated[float | None, Option(help=GBPS_HELP)] = None,
    cluster: ClusterOptions,
    compute: Compute = None,
    device: Annotated[
        str, Option(help="Where gradients of a named model are: auto, cpu, cuda.")
    ] = "auto",
    steps: Annotated[int, Option(min=10, help="Steps of a script to look at.")] = STEPS,
    profile: Annotated[
        Path | None, Option(help="A rank's trace of torch.profiler, in place of a run.")
    ] = None,
    refresh: Annotated[bool, Option("--refresh", help="Measure the recipes anew, too.")] = False,
    json_path: JsonPath = None,
) -> None:
    """Say whether compression pays here, yes or no, with the numbers.

    Under torchrun, or in thinwire lab, it measures the cluster. With --gbps the network is taken
    as given. Alone it measures processes on this machine, over the loopback. Gradients on GPUs
    travel by NCCL.

    thinwire doctor train.py --epochs 1 runs some steps of your own DDP script as it is, and
    looks at them; it starts the workers itself where torchrun has not. Options of doctor come
    before the script, those of the script after it. --profile trace.json looks at what
    torch.profiler has exported, over the network that its exchanges show.
    """
    launched = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ
    workers = int(os.environ["WORLD_SIZE"]) if launched else workers
    cluster.check_workers(workers)
    asked = _Asked(cluster, workers, launched, gbps, compute, refresh, json_path)
    target, *arguments = model or ["resnet50"]
    if profile is not None:
        _look_at_profile(asked, profile, find_model(target) if model else None)
    elif target.endswith(".py"):
        _look_at_script(asked, Path(target), arguments, steps)
    elif arguments:
        raise ThinwireError(f"{target!r} takes no arguments; a script of yours ends in .py")
    else:
        chosen, planned = chosen_device(device), find_model(target)
        asked.answer(planned, asked.measured(chosen), asked.where)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What to find out, and where: alone, or as one of the ranks that torchrun launched."""

    cluster: ClusterOptions
    workers: int
    launched: bool
    gbps: float | None
    compute: float | None
    refresh: bool
    json_path: Path | None

    @property
    def speaks(self) -> bool:
        """One for all: their numbers are the same."""
        return not self.launched or os.environ["RANK"] == "0"

    @property
    def where(self) -> str:
        """Which network it is."""
        if self.gbps is not None:
            return "a network as given"
        return (
            "this cluster, measured" if self.launched else "this machine alone, over its loopback"
        )

    def measured(self, device: torch.device, gbps: float | None = None) -> Calibration:
        """Network and device; of the network, that is given or found, no more than what it says."""
        gbps = gbps if self.gbps is None else self.gbps
        case: dict[str, Any] = {
            "recipes": split(self.cluster.recipes),
            "density": self.cluster.density,
            "node_size": self.cluster.node_size,
            "refresh": self.refresh,
        }
        with activity(plain_console(), "measuring", shown=self.speaks) as tell:
            if gbps is not None:
                recipes = [*self.cluster.pipelines().values(), *pipelines().values()]
                link = Link.of(gbps, self.cluster.latency)
                network = self.cluster.network(link, backend_of(device))
                return Calibration(network, device_costs(recipes, device, self.refresh, tell))
            if dist.is_initialized():  # by the script
                return calibrate_group(case, device, tell)
            if self.launched:
                return measure_under_torchrun(case, device, tell)
            return measure_on_loopback(case, self.workers, device, tell)

    def answer(
        self, model: Model, measured: Calibration, where: str, seen: Observed | None = None
    ) -> None:
        """Say it, on one rank."""
        if self.speaks:
            planned, recipes = model.taking(self.compute), self.cluster.pipelines()
            found = Findings(planned, self.workers, recipes, measured, where, seen)
            answer(found, ResultFile(self.json_path))


def _look_at_profile(asked: _Asked, profile: Path, model: Model | None) -> None:
    found = read_profile(profile, model)
    seen = found.seen
    where = asked.where if asked.gbps is not None else "the network as the profile shows it"
    measured = asked.measured(chosen_device(seen.device.type), found.gbps)
    replace(asked, workers=seen.workers).answer(seen.model, measured, where, seen)


def _look_at_script(asked: _Asked, script: Path, arguments: Sequence[str], steps: int) -> None:
    if not script.is_file():
        raise ThinwireError(f"there is no script {str(script)!r}")
    if not asked.launched:
        console = plain_console()
        if console.is_terminal:
            text = f"looking at {steps} steps of {script}, on {asked.workers} workers"
            console.print(text, markup=False)
        _launch(asked.workers)

    def look(seen: Observed) -> None:
        asked.answer(seen.model, asked.measured(seen.device), asked.where, seen)

    observe(script, arguments, steps, look)


def _launch(workers: int) -> None:
    """Begin anew as the ranks of torchrun on this machine; does not come back."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    doctor = ["-m", "thinwire.cli.app", *sys.argv[1:]]
    os.execv(sys.executable, [*torchrun, "--nproc-per-node", str(workers), *doctor])
