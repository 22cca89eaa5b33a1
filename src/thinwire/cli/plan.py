"""`thinwire plan`: what a model would take on a cluster that one need not have.

Hooked into the command line by `app.command("plan")(plan)`.
"""

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from thinwire.cli import plan_options as options
from thinwire.cli.console import plain_console, table
from thinwire.cli.options import JsonPath
from thinwire.cost.curves import Costs
from thinwire.cost.network import Link, Network
from thinwire.cost.predict import Prediction, unit_cost
from thinwire.format import duration, short
from thinwire.pipeline import Pipeline
from thinwire.plan.measure import device_costs
from thinwire.plan.models import find_model
from thinwire.plan.steps import predictions, show_steps, step_rows
from thinwire.results.file import ResultFile, Row


def plan(
    model: options.ModelName,
    workers: Annotated[int, typer.Option(min=1, help="Ranks in all.")] = 8,
    gbps: Annotated[float, typer.Option(help="Gbit/s of a rank's link, each way.")] = 1.0,
    latency: options.Latency = options.LATENCY,
    recipes: options.Recipes = options.CANDIDATES,
    density: options.Density = 0.01,
    compute: options.Compute = None,
    overlap: Annotated[bool, typer.Option(help="Exchange beside the backward pass.")] = True,
    device: Annotated[
        str, typer.Option(help="Where to measure selection: auto, cpu, cuda; none leaves it out.")
    ] = "auto",
    node_size: options.NodeSize = 1,
    inside_gbps: options.InsideGbps = options.INSIDE_GBPS,
    inside_latency: options.InsideLatency = options.INSIDE_LATENCY,
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure this machine anew.")] = False,
    json_path: JsonPath = None,
) -> None:
    """Predict a training step with each recipe, and tensor by tensor for the fastest."""
    options.check_workers(workers, node_size)
    planned, made = find_model(model).taking(compute), options.pipelines(recipes, density)
    link = Link.of(gbps, latency)
    network = options.given_network(link, node_size, inside_gbps, inside_latency)
    where = None if device == "none" else options.chosen_device(device)
    results = ResultFile(json_path)
    costs = None if where is None else device_costs(made.values(), where, refresh)
    steps = predictions(made, planned, workers, network, costs, overlap)
    rows = step_rows(steps, planned, workers, network)

    screen = plain_console(options.PLAIN_WIDTH)
    title = (
        f"{planned.name}, {planned.numel:,} parameters, {workers} workers, {network}, "
        f"{duration(planned.compute)} of compute"
    )
    show_steps(screen, title, rows)
    best = next(iter(steps))
    tensors = list(_tensor_rows(best, made["dense"], steps[best], network, workers, costs))
    _show_tensors(screen, best, tensors)
    screen.print(_footnote(costs))
    results.add([*rows, *tensors])


def _tensor_rows(
    name: str,
    dense: Pipeline,
    made: Prediction,
    network: Network,
    workers: int,
    costs: Costs | None,
) -> Iterator[Row]:
    """Each unit of the fastest recipe, beside the same unit sent dense."""
    for cost in made.units:
        beside = unit_cost(dense, cost.unit, workers, network, costs)
        yield {
            "recipe": name,
            "tensor": _label(cost.unit.names),
            "tensors": len(cost.unit.names),
            "n": cost.unit.numel,
            "k": cost.k,
            "unit_seconds": cost.seconds,
            "work_seconds": cost.work,
            "exchange_seconds": cost.exchange,
            "dense_seconds": beside.seconds,
            "bytes_per_rank": cost.sent,
            "bypassed": cost.unit.bypassed,
        }


def _show_tensors(screen: Console, name: str, rows: list[Row]) -> None:
    shown = table(
        f"{name}, in the order of the exchange",
        "tensor", "elements", "sent", "work", "exchange", "sent dense", "bytes a rank", "pays",
    )  # fmt: skip
    for row in rows:
        shown.add_row(
            row["tensor"],
            f"{row['n']:,}",
            f"{row['k']:,.0f}",
            duration(row["work_seconds"]),
            duration(row["exchange_seconds"]),
            duration(row["dense_seconds"]),
            short(row["bytes_per_rank"]),
            _pays(row),
        )
    screen.print(shown)


def _pays(row: Row) -> str:
    if row["bypassed"]:
        return ""
    return "yes" if row["unit_seconds"] < row["dense_seconds"] else "no"


def _label(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _footnote(costs: Costs | None) -> str:
    if costs is None:
        return "Computed: the network only; selecting and coding are taken to cost nothing."
    return (
        "Computed from the network as given, and from selection and codecs as measured on this "
        f"machine ({costs.device})."
    )
