"""`thinwire simulate`: scaling curves of any recipe over any network.

Hooked into the command line by `app.command("simulate")(simulate)`.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console

from thinwire.cli import plan_options as options
from thinwire.cli.console import plain_console, table
from thinwire.cli.options import JsonPath, PngFolder, read_time
from thinwire.cli.parse import elements
from thinwire.cost.network import Link, Network
from thinwire.cost.predict import ALIKE, predict
from thinwire.errors import ThinwireError
from thinwire.format import duration, short
from thinwire.pipeline import Pipeline
from thinwire.plan.models import Model, find_model
from thinwire.report.charts.png import refuse_without_matplotlib, save_figures
from thinwire.results.file import ResultFile, Row


def simulate(
    recipes: options.Recipes = options.CANDIDATES,
    workers: Annotated[
        str, typer.Option(help="Ranks in all: 2..4096 by powers of two, or 4,8,12.")
    ] = "2..4096",
    alpha: Annotated[
        float | None,
        typer.Option(parser=read_time, metavar="TIME", help="Of a message; or --latency."),
    ] = None,
    beta: Annotated[float | None, typer.Option(help="Seconds a byte; or --gbps.")] = None,
    overhead: Annotated[
        float | None,
        typer.Option(
            parser=read_time,
            metavar="TIME",
            help="Of each further message of a round; α if not set, as in the papers.",
        ),
    ] = None,
    gbps: options.Gbps = None,
    latency: options.Latency = options.LATENCY,
    n: Annotated[str, typer.Option("--n", help="Elements of the gradient: 25.6m.")] = "25.6m",
    model: Annotated[
        str | None, typer.Option(help="A model in place of --n, as for plan, unit by unit.")
    ] = None,
    density: options.Density = 0.01,
    alike: Annotated[
        float, typer.Option(min=0, max=1, help="Share of a selection that all ranks have.")
    ] = ALIKE,
    node_size: options.NodeSize = 1,
    inside_gbps: options.InsideGbps = options.INSIDE_GBPS,
    inside_latency: options.InsideLatency = options.INSIDE_LATENCY,
    png: PngFolder = None,
    json_path: JsonPath = None,
) -> None:
    """Compute the time and the bytes of one exchange, from 2 to thousands of workers."""
    if beta is not None and gbps is not None:
        raise ThinwireError(f"beta={beta} and gbps={gbps} say the same: give one of them")
    wire = Link.of(1.0 if gbps is None else gbps, latency).beta if beta is None else beta
    link = Link(latency if alpha is None else alpha, wire, overhead)
    network = options.given_network(link, node_size, inside_gbps, inside_latency)
    numbers = worker_range(workers)
    for number in numbers:
        options.check_workers(number, node_size)
    target = find_model(model) if model else Model("gradient", {"gradient": (elements(n),)})
    made = options.pipelines(recipes, density)
    if png is not None:
        refuse_without_matplotlib()
    results = ResultFile(json_path)
    results.add(_rows(made, numbers, network, target, alike))
    show(plain_console(options.PLAIN_WIDTH), network, target, results.rows)
    if png is not None:
        for path in save_figures(results.rows, png):
            typer.echo(f"Figure: {path}")


def worker_range(text: str) -> list[int]:
    """Numbers of workers.

    >>> worker_range("3..20")
    [3, 4, 8, 16, 20]
    """
    low, dots, high = text.partition("..")
    try:
        if not dots:
            numbers = [int(word) for word in text.split(",")]
        else:
            first, last = int(low), int(high)
            powers = (1 << p for p in range(last.bit_length()))
            numbers = sorted({first, last, *(p for p in powers if first < p < last)})
    except ValueError:
        raise ThinwireError(f"workers={text!r} must be as 2..4096, or as 4,8,16") from None
    if min(numbers) < 1 or (dots and int(low) > int(high)):
        raise ThinwireError(f"workers={text!r} must go up from at least 1")
    return numbers


def _rows(
    recipes: dict[str, Pipeline], numbers: list[int], network: Network, model: Model, alike: float
) -> Iterator[Row]:
    for name, recipe in recipes.items():
        own = getattr(recipe.sparsifier, "density", None)
        for workers in numbers:
            made = predict(recipe, model.shapes, workers, network, alike=alike)
            yield {
                "recipe": name,
                "workers": workers,
                "alpha": network.link.alpha,
                "beta": network.link.beta,
                "n": model.numel,
                "density": own,
                "seconds": made.busy,
                "bytes_per_rank": sum(unit.sent for unit in made.units),
                "model": model.name,
                "node_size": network.node_size,
                "alike": alike,
            }


def show(screen: Console, network: Network, model: Model, rows: list[Row]) -> None:
    """Seconds, then bytes: a row a number of workers, a column a recipe."""
    columns = {name: list(rows) for name, rows in groupby(rows, lambda row: str(row["recipe"]))}
    what = f"{model.numel:,} elements, {network}"
    for field, words, form in (
        ("seconds", "time of an exchange", duration),
        ("bytes_per_rank", "bytes a rank", short),
    ):
        shown = table(f"{words}: {what}", "workers", *columns)
        for line in zip(*columns.values(), strict=True):
            shown.add_row(str(line[0]["workers"]), *(form(row[field]) for row in line))
        screen.print(shown)
