"""`thinwire doctor`: is this cluster and this model worth compressing?"""

import os
from typing import Annotated

from typer import Option

from thinwire.cli.console import plain_console
from thinwire.cli.options import JsonPath, with_option_groups
from thinwire.cli.parse import split
from thinwire.cli.plan import show_steps
from thinwire.cli.plan_options import GBPS_HELP, PLAIN_WIDTH, ClusterOptions, Compute, ModelName
from thinwire.cost.calibration import Calibration
from thinwire.cost.network import Link, Network
from thinwire.cost.predict import Prediction
from thinwire.plan.local import local_plans, local_verdict
from thinwire.plan.measure import (
    backend_of,
    chosen_device,
    device_costs,
    measure_on_loopback,
    measure_under_torchrun,
)
from thinwire.plan.models import find_model
from thinwire.plan.steps import predictions, step_rows
from thinwire.plan.verdict import diagnose, link_below
from thinwire.results.file import ResultFile, Row


@with_option_groups
def doctor(
    model: ModelName = "resnet50",
    *,
    workers: Annotated[
        int, Option(min=2, help="Ranks in all; under torchrun those there are.")
    ] = 4,
    gbps: Annotated[float | None, Option(help=GBPS_HELP)] = None,
    cluster: ClusterOptions,
    compute: Compute = None,
    device: Annotated[str, Option(help="Where gradients are: auto, cpu, cuda.")] = "auto",
    refresh: Annotated[bool, Option("--refresh", help="Measure everything anew.")] = False,
    json_path: JsonPath = None,
) -> None:
    """Say whether compression pays here, yes or no, with the numbers.

    Under torchrun, or in thinwire lab, it measures the cluster. With --gbps the network is taken
    as given. Alone it measures processes on this machine, over the loopback. Gradients on GPUs
    travel by NCCL.
    """
    chosen = chosen_device(device)
    planned, recipes = find_model(model).taking(compute), cluster.pipelines()
    launched = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ
    workers = int(os.environ["WORLD_SIZE"]) if launched else workers
    speaks = not launched or os.environ["RANK"] == "0"  # one for all: their numbers are the same
    cluster.check_workers(workers)
    results = ResultFile(json_path if speaks else None)
    case = {
        "recipes": split(cluster.recipes),
        "density": cluster.density,
        "node_size": cluster.node_size,
        "refresh": refresh,
    }
    if gbps is not None:
        network = cluster.network(Link.of(gbps, cluster.latency), backend_of(chosen))
        costs = device_costs(recipes.values(), chosen, refresh)
        measured, where = Calibration(network, costs), "a network as given"
    elif launched:
        measured, where = measure_under_torchrun(case, chosen), "this cluster, measured"
    else:
        measured = measure_on_loopback(case, workers, chosen)
        where = "this machine alone, over its loopback"
    if not speaks:
        return

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
    }
    plans = local_plans(planned, workers, measured.network, None) if planned.compute else []
    local = local_verdict(steps, plans) if plans else ""
    summary |= {"local_steps": local, "every": {plan.name: plan.every for plan in plans}}
    results.add([*rows, summary | measured.to_dict()])
    console = plain_console(PLAIN_WIDTH)
    title = f"{planned.name} on {workers} workers: {where} ({measured.network})"
    show_steps(console, title, rows)
    console.print(verdict.text)
    if local:
        console.print(local)
