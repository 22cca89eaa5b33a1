"""`thinwire simulate`: scaling curves of any recipe over any network."""

from itertools import groupby
from typing import Annotated

from rich.console import Console
from typer import Option, echo

from thinwire.cli.console import plain_console, show_table
from thinwire.cli.options import JsonPath, PngFolder, time_option, with_option_groups
from thinwire.cli.parse import elements, worker_range
from thinwire.cli.plan_options import GBPS_HELP, PLAIN_WIDTH, ClusterOptions
from thinwire.cost.network import Link
from thinwire.cost.predict import ALIKE
from thinwire.errors import ThinwireError
from thinwire.format import duration, short
from thinwire.plan.models import Model, find_model
from thinwire.plan.steps import exchange_rows
from thinwire.report.charts.png import refuse_without_matplotlib, save_figures
from thinwire.results.file import ResultFile, Row


@with_option_groups
def simulate(
    *,
    workers: Annotated[
        str, Option(help="Ranks in all: 2..4096 by powers of two, or 4,8,12.")
    ] = "2..4096",
    alpha: Annotated[float | None, time_option("Of a message; or --latency.")] = None,
    beta: Annotated[float | None, Option(help="Seconds per byte; or --gbps.")] = None,
    overhead: Annotated[
        float | None,
        time_option("Of each further message of a round; α if not set, as in the papers."),
    ] = None,
    gbps: Annotated[float | None, Option(help=GBPS_HELP)] = None,
    cluster: ClusterOptions,
    n: Annotated[str, Option("--n", help="Elements of the gradient: 25.6m.")] = "25.6m",
    model: Annotated[
        str | None, Option(help="A model in place of --n, as for plan, unit by unit.")
    ] = None,
    alike: Annotated[
        float, Option(min=0, max=1, help="Share of a selection that all ranks have.")
    ] = ALIKE,
    nccl: Annotated[
        bool, Option("--nccl", help="Gradients on GPUs: buckets at once, in NCCL's rings.")
    ] = False,
    png: PngFolder = None,
    json_path: JsonPath = None,
) -> None:
    """Compute the time and the bytes of one exchange, from 2 to thousands of workers."""
    if beta is not None and gbps is not None:
        raise ThinwireError(f"beta={beta} and gbps={gbps} say the same: give one of them")
    link = Link.of(1.0 if gbps is None else gbps, cluster.latency)
    network = cluster.network(
        Link(link.alpha if alpha is None else alpha, link.beta if beta is None else beta, overhead),
        "nccl" if nccl else "gloo",
    )
    numbers = worker_range(workers)
    for number in numbers:
        cluster.check_workers(number)
    target = find_model(model) if model else Model("gradient", {"gradient": (elements(n),)})
    recipes = cluster.pipelines()
    if png is not None:
        refuse_without_matplotlib()
    results = ResultFile(json_path)
    results.add(exchange_rows(recipes, numbers, network, target, alike))
    _show(plain_console(PLAIN_WIDTH), f"{target.numel:,} elements, {network}", results.rows)
    if png is not None:
        for path in save_figures(results.rows, png):
            echo(f"Figure: {path}")


def _show(console: Console, setting: str, rows: list[Row]) -> None:
    """Seconds, then bytes: a row for each number of workers, a column for each recipe."""
    columns = {name: list(rows) for name, rows in groupby(rows, lambda row: str(row["recipe"]))}
    for field, words, form in (
        ("seconds", "time of an exchange", duration),
        ("bytes_per_rank", "bytes per rank", short),
    ):
        lines = [
            (str(line[0]["workers"]), *(form(row[field]) for row in line))
            for line in zip(*columns.values(), strict=True)
        ]
        show_table(console, f"{words}: {setting}", ("workers", *columns), lines)
