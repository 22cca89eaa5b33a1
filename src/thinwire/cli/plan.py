"""`thinwire plan`: what a model would take on a cluster that one need not have."""

from typing import Annotated

from rich.console import Console
from typer import Option

from thinwire.cli.console import activity, plain_console, show_table
from thinwire.cli.options import JsonPath, with_option_groups
from thinwire.cli.plan_options import GBPS_HELP, PLAIN_WIDTH, ClusterOptions, Compute, ModelName
from thinwire.cost.curves import Costs
from thinwire.cost.network import Link
from thinwire.format import duration, optional, short
from thinwire.plan.local import local_plans, local_verdict, pipelines
from thinwire.plan.measure import backend_of, chosen_device, device_costs
from thinwire.plan.models import find_model
from thinwire.plan.steps import predictions, step_rows, tensor_rows
from thinwire.results.file import ResultFile, Row

STEP_HEADINGS = ("recipe", "step", "from … to", "exchange and work", "bytes per rank", "× dense")
TENSOR_HEADINGS = (
    *("tensor", "elements", "sent", "work", "exchange"),
    *("sent dense", "bytes per rank", "pays"),
)
LOCAL_HEADINGS = (
    *("set-up", "exchange", "work", "bytes per rank and round"),
    *("every, waited for", "every, in the background", "delay"),
)
PAYS = {None: "", True: "yes", False: "no"}


@with_option_groups
def plan(
    model: ModelName,
    *,
    workers: Annotated[int, Option(min=1, help="Ranks in all.")] = 8,
    gbps: Annotated[float, Option(help=GBPS_HELP)] = 1.0,
    cluster: ClusterOptions,
    compute: Compute = None,
    overlap: Annotated[bool, Option(help="Exchange beside the backward pass.")] = True,
    utilisation: Annotated[
        float, Option(help="Share of the time that local steps shall leave to the compute.")
    ] = 0.95,
    device: Annotated[
        str, Option(help="Where to measure selection: auto, cpu, cuda; none leaves it out.")
    ] = "auto",
    refresh: Annotated[bool, Option("--refresh", help="Measure this machine anew.")] = False,
    json_path: JsonPath = None,
) -> None:
    """Predict a training step with each recipe, and tensor by tensor for the fastest.

    Where the compute is known, also say whether local steps pay (`tw.outer`), and how many.
    """
    cluster.check_workers(workers)
    planned, recipes = find_model(model).taking(compute), cluster.pipelines()
    measured = None if device == "none" else chosen_device(device, ("none",))
    network = cluster.network(Link.of(gbps, cluster.latency), backend_of(measured))
    results = ResultFile(json_path)
    all_recipes = [*recipes.values(), *(pipelines().values() if planned.compute else ())]
    console = plain_console(PLAIN_WIDTH)
    costs = None
    if measured is not None:
        with activity(console, "measuring selection and codecs") as tell:
            costs = device_costs(all_recipes, measured, refresh, tell)
    steps = predictions(recipes, planned, workers, network, costs, overlap)
    rows = step_rows(steps, planned, workers, network)
    best = next(iter(steps))
    tensors = tensor_rows(best, steps[best], recipes["dense"], workers, network, costs)
    with_rounds = planned.compute > 0
    plans = local_plans(planned, workers, network, costs, utilisation) if with_rounds else []
    local = [one.row(planned, workers, network) for one in plans]
    results.add([*rows, *tensors, *local])

    title = (
        f"{planned.name}, {planned.numel:,} parameters, {workers} workers, {network}, "
        f"{duration(planned.compute)} of compute"
    )
    show_steps(console, title, rows)
    _show_tensors(console, best, tensors)
    if plans:
        _show_local(console, local)
        console.print(local_verdict(steps, plans))
    console.print(_footnote(costs))


def show_steps(console: Console, title: str, rows: list[Row]) -> None:
    """Steps, the fastest first."""
    lines = [
        (
            row["recipe"],
            duration(row["step_seconds"]),
            f"{duration(row['step_seconds_low'])} … {duration(row['step_seconds_high'])}",
            duration(row["busy_seconds"]),
            short(row["bytes_per_rank"]),
            optional(row["speedup_over_dense"], ".2f"),
        )
        for row in rows
    ]
    show_table(console, title, STEP_HEADINGS, lines)


def _show_tensors(console: Console, name: str, rows: list[Row]) -> None:
    lines = [
        (
            row["tensor"],
            f"{row['n']:,}",
            f"{row['k']:,.0f}",
            duration(row["work_seconds"]),
            duration(row["exchange_seconds"]),
            duration(row["dense_seconds"]),
            short(row["bytes_per_rank"]),
            PAYS[None if row["bypassed"] else row["unit_seconds"] < row["dense_seconds"]],
        )
        for row in rows
    ]
    show_table(console, f"{name}, in the order of the exchange", TENSOR_HEADINGS, lines)


def _show_local(console: Console, rows: list[Row]) -> None:
    lines = [
        (
            row["setup"],
            duration(row["exchange_seconds"]),
            duration(row["work_seconds"]),
            short(row["bytes_per_round"]),
            str(row["every"]),
            str(row["every_in_background"]),
            str(row["delay"]),
        )
        for row in rows
    ]
    title = f"local steps, for {rows[0]['utilisation']:.0%} of the time to compute"
    show_table(console, title, LOCAL_HEADINGS, lines)


def _footnote(costs: Costs | None) -> str:
    if costs is None:
        return "Computed: the network only; selecting and coding are taken to cost nothing."
    return (
        "Computed from the network as given, and from selection and codecs as measured on this "
        f"machine ({costs.device})."
    )
