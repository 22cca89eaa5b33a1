"""`thinwire doctor`: is this cluster and this model worth compressing?

Hooked into the command line by `app.command("doctor")(doctor)`.
"""

import os
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer

from thinwire.cli import plan_options as options
from thinwire.cli.console import plain_console
from thinwire.cli.options import JsonPath
from thinwire.cost.calibration import Calibration
from thinwire.cost.network import Link
from thinwire.cost.predict import Prediction
from thinwire.format import duration
from thinwire.lab import Lab
from thinwire.lab.ranks import Workers
from thinwire.plan.measure import calibration, device_costs
from thinwire.plan.models import find_model
from thinwire.plan.steps import predictions, show_steps, step_rows
from thinwire.results.file import ResultFile

WORTH = 0.95  # of dense's step: a smaller gain is not worth the change
TARGET = "thinwire.plan.measure:measure"


def doctor(
    model: options.ModelName = "resnet50",
    workers: Annotated[
        int, typer.Option(min=2, help="Ranks in all; under torchrun those there are.")
    ] = 4,
    gbps: options.Gbps = None,
    latency: options.Latency = options.LATENCY,
    recipes: options.Recipes = options.CANDIDATES,
    density: options.Density = 0.01,
    compute: options.Compute = None,
    node_size: options.NodeSize = 1,
    inside_gbps: options.InsideGbps = options.INSIDE_GBPS,
    inside_latency: options.InsideLatency = options.INSIDE_LATENCY,
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure everything anew.")] = False,
    json_path: JsonPath = None,
) -> None:
    """Say whether compression pays here, yes or no, with the numbers.

    Under torchrun it measures the cluster. With --gbps the network is taken as given. Alone it
    measures processes on this machine, over the loopback.
    """
    case = {"recipes": recipes, "density": density, "node_size": node_size, "refresh": refresh}
    planned, made = find_model(model).taking(compute), options.pipelines(recipes, density)
    launched = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ
    workers = int(os.environ["WORLD_SIZE"]) if launched else workers
    speaks = not launched or os.environ["RANK"] == "0"  # one for all: their numbers are the same
    options.check_workers(workers, node_size)
    results = ResultFile(json_path if speaks else None)
    if gbps is not None:
        link = Link.of(gbps, latency)
        network = options.given_network(link, node_size, inside_gbps, inside_latency)
        costs = device_costs(made.values(), options.chosen_device("auto"), refresh)
        measured, where = Calibration(network, costs), "a network as given"
    elif launched:
        measured, where = _under_torchrun(case), "this cluster, measured"
    else:
        measured, where = _on_loopback(case, workers), "this machine alone, over its loopback"
    if not speaks:
        return

    steps = predictions(made, planned, workers, measured.network, measured.costs)
    rows = step_rows(steps, planned, workers, measured.network)
    screen = plain_console(options.PLAIN_WIDTH)
    title = f"{planned.name} on {workers} workers: {where} ({measured.network})"
    show_steps(screen, title, rows)
    worth, verdict = diagnose(steps, planned.compute)
    screen.print(verdict)
    best = next(iter(steps))
    summary = {"worth": worth, "verdict": verdict, "best": best, **measured.to_dict()}
    results.add([*rows, summary])


def diagnose(steps: dict[str, Prediction], compute: float) -> tuple[bool, str]:
    """Whether to compress, and why, in one sentence or two."""
    name, best = next(iter(steps.items()))
    dense = steps["dense"]
    hidden = dense.seconds <= 1.05 * compute
    if name == "dense" or best.seconds > WORTH * dense.seconds:
        reason = (
            f"the exchange ({duration(dense.busy)}) hides behind {duration(compute)} of compute"
            if hidden
            else f"the best other recipe takes {duration(_other(steps).seconds)}"
        )
        return False, f"No: a step takes {duration(dense.seconds)} with dense allreduce; {reason}."
    sure = "" if best.high < dense.low else " The two intervals overlap: measure before you decide."
    return True, (
        f"Yes: {name} takes {duration(best.seconds)} a step where dense takes "
        f"{duration(dense.seconds)}, {dense.seconds / best.seconds:.1f} times as long.{sure}"
    )


def _other(steps: dict[str, Prediction]) -> Prediction:
    return next((made for name, made in steps.items() if name != "dense"), steps["dense"])


def _under_torchrun(case: dict[str, Any]) -> Calibration:
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        return calibration(case, device)
    finally:
        dist.destroy_process_group()


def _on_loopback(case: dict[str, Any], workers: int) -> Calibration:
    with Lab(workers, loopback=True) as lab:
        answers = Workers(lab, workers, TARGET).run(case, lambda: None)
    return Calibration.from_dict(answers[0]["calibration"])
