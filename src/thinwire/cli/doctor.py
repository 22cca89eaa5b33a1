"""`thinwire doctor`: is this cluster and this model worth compressing?"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import torch
from rich.console import Console
from typer import Argument, Option

from thinwire.auto.quality import Quality
from thinwire.cli.console import plain_console, show_table
from thinwire.cli.options import JsonPath, with_option_groups
from thinwire.cli.parse import split
from thinwire.cli.plan import show_steps
from thinwire.cli.plan_options import GBPS_HELP, PLAIN_WIDTH, ClusterOptions, Compute
from thinwire.cost.calibration import Calibration
from thinwire.cost.network import Link, Network
from thinwire.cost.predict import Prediction
from thinwire.errors import ThinwireError
from thinwire.pipeline import Pipeline
from thinwire.plan.local import local_plans, local_verdict
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
from thinwire.plan.steps import predictions, step_rows
from thinwire.plan.verdict import Verdict, diagnose, link_below, tiers
from thinwire.results.file import ResultFile, Row

STEPS = 30  # of a user's script
TIER_HEADINGS = ("quality", "best recipe", "× dense", "from … to", "final loss")
LOSS: dict[Quality, str] = {
    "exact": "dense's",
    "near": "as near as bf16's",
    "fast": "behind at equal steps",
}
Given = Annotated[
    list[str] | None,
    Argument(help="A known model, or your own, module:function; or after -- a script of yours."),
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
    device: Annotated[str, Option(help="Where gradients are: auto, cpu, cuda.")] = "auto",
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

    thinwire doctor -- train.py --epochs 1 runs some steps of your own DDP script as it is, and
    looks at them; it starts the workers itself where torchrun has not. --profile trace.json
    looks at what torch.profiler has exported, over the network that its exchanges show.
    """
    launched = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ
    workers = int(os.environ["WORLD_SIZE"]) if launched else workers
    speaks = not launched or os.environ["RANK"] == "0"  # one for all: their numbers are the same
    cluster.check_workers(workers)
    recipes = cluster.pipelines()
    case = {
        "recipes": split(cluster.recipes),
        "density": cluster.density,
        "node_size": cluster.node_size,
        "refresh": refresh,
    }

    def given(chosen: torch.device, at: float) -> Calibration:
        network = cluster.network(Link.of(at, cluster.latency), backend_of(chosen))
        return Calibration(network, device_costs(recipes.values(), chosen, refresh))

    def say(
        planned: Model, measured: Calibration, where: str, seen: Observed | None = None
    ) -> None:
        if speaks:
            title = f"{planned.name} on {workers} workers: {where} ({measured.network})"
            results = ResultFile(json_path)
            _diagnosed(planned, workers, recipes, measured, results, title, seen)

    if profile is not None:
        found = read_profile(profile, find_model(model[0]) if model else None)
        workers = found.seen.workers
        on = chosen_device(found.seen.device.type)
        where = _where(gbps, True) if gbps else "the network as the profile shows it"
        say(found.seen.model.taking(compute), given(on, gbps or found.gbps), where, found.seen)
        return
    target, *arguments = model or ["resnet50"]
    if target.endswith(".py"):
        if not Path(target).is_file():
            raise ThinwireError(f"there is no script {target!r}")
        if not launched:
            _launch(workers)

        def look(found: Observed) -> None:
            on = found.device
            measured = calibrate_group(case, on) if gbps is None else given(on, gbps)
            say(found.model.taking(compute), measured, _where(gbps, True), found)

        observe(Path(target), arguments, steps, look)
        return
    if arguments:
        raise ThinwireError(f"{target!r} takes no arguments; a script of yours ends in .py")
    chosen, planned = chosen_device(device), find_model(target).taking(compute)
    if gbps is not None:
        measured = given(chosen, gbps)
    elif launched:
        measured = measure_under_torchrun(case, chosen)
    else:
        measured = measure_on_loopback(case, workers, chosen)
    say(planned, measured, _where(gbps, launched))


def _where(gbps: float | None, launched: bool) -> str:
    if gbps is not None:
        return "a network as given"
    return "this cluster, measured" if launched else "this machine alone, over its loopback"


def _launch(workers: int) -> None:
    """Begin anew as the ranks of torchrun on this machine; does not come back."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    doctor = ["-m", "thinwire.cli.app", *sys.argv[1:]]
    os.execv(sys.executable, [*torchrun, "--nproc-per-node", str(workers), *doctor])


def _diagnosed(
    planned: Model,
    workers: int,
    recipes: Mapping[str, Pipeline],
    measured: Calibration,
    results: ResultFile,
    title: str,
    seen: Observed | None,
) -> None:
    """The table, the verdict, and what to do; also into the results."""

    def steps_over(network: Network) -> dict[str, Prediction]:
        return predictions(recipes, planned, workers, network, measured.costs)

    steps = steps_over(measured.network)
    rows = step_rows(steps, planned, workers, measured.network)
    below = link_below(measured.network, steps_over, recipes)
    verdict = diagnose(steps, recipes, planned.compute, below)
    summary: Row = {
        "worth": verdict.answer == "yes",
        "answer": verdict.answer,
        "verdict": verdict.text,
        "best": next(iter(steps)),
        "best_by_quality": verdict.best,
        "pays_below_gbps": below,
        "gain_by_quality": tiers(steps, recipes, verdict),
        "observed": str(seen or ""),
    }
    plans = local_plans(planned, workers, measured.network, None) if planned.compute else []
    local = local_verdict(steps, plans) if plans else ""
    summary |= {"local_steps": local, "every": {plan.name: plan.every for plan in plans}}
    results.add([*rows, summary | measured.to_dict()])
    console = plain_console(PLAIN_WIDTH)
    show_steps(console, title, rows)
    _show_tiers(console, summary["gain_by_quality"])
    to_add = _to_add(verdict, seen is not None and seen.hook == "thinwire")
    for line in filter(None, (str(seen or ""), verdict.text, local, to_add)):
        console.print(line, markup=False)


def _show_tiers(console: Console, rows: list[Row]) -> None:
    lines = [
        (
            row["quality"],
            row["recipe"],
            f"{row['gain']:.2f}",
            f"{row['gain_low']:.2f} … {row['gain_high']:.2f}",
            LOSS[row["quality_of_recipe"]],
        )
        for row in rows
    ]
    show_table(console, "what each tier of quality would gain", TIER_HEADINGS, lines)


def _to_add(verdict: Verdict, has_one: bool) -> str:
    """The one line, where it is worth one; or what becomes of the one that is there."""
    if verdict.answer == "no":
        return "Leave thinwire.compress away here." if has_one else ""
    tier = {"yes": "near", "at a price": "fast"}[verdict.answer]
    named = verdict.best["near" if tier == "near" else "fast"]
    auto = "auto" if tier == "near" else "auto(quality='fast')"
    where = "Change the one line" if has_one else "Add one line after DistributedDataParallel"
    return (
        f'{where}: thinwire.compress(ddp, "{named}"); or "{auto}", which tries on your own steps.'
    )
