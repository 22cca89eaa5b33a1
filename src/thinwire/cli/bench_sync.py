"""`thinwire bench sync`."""

from typing import Annotated

from rich.console import Console
from typer import Option

from thinwire.cli.console import carry_out, show_table
from thinwire.cli.options import (
    Budget,
    Check,
    Densities,
    Device,
    JsonPath,
    Nodes,
    Rates,
    Seed,
    Workers,
)
from thinwire.cli.parse import (
    check_choice,
    device_choice,
    elements,
    link_rate,
    listed,
    number,
    split,
    whole,
)
from thinwire.format import milliseconds, optional, setting
from thinwire.report.panels import panels
from thinwire.results.file import ResultFile, Row

PHASES = ("feedback", "select", "encode", "exchange", "decode", "other")
HEADINGS = ("recipe", "density", "ms", "from … to", *PHASES, "KB sent", "× dense")


def sync(
    recipes: Annotated[
        str, Option(help="Recipes and peers (torch-…), separated by commas; all if not set.")
    ] = "",
    n: Annotated[str, Option("--n", help="Elements of the gradient: 1m,25.6m.")] = "1m",
    workers: Workers = "4",
    nodes: Nodes = None,
    rates: Rates = "none,1gbit",
    density: Densities = "0.01",
    steps: Annotated[int, Option(min=1, help="Timed steps of each case.")] = 5,
    warmup: Annotated[int, Option(min=0, help="Steps before the timed ones.")] = 2,
    seed: Seed = 0,
    check: Check = "refuse",
    device: Device = "cpu",
    budget_s: Budget = None,
    json_path: JsonPath = None,
) -> None:
    """Time one synchronisation: recipes and peers, by size, workers and rate."""
    from thinwire.bench.sync.run import Settings, plan, run

    settings = Settings(
        recipes=split(recipes),
        n=listed("--n", elements, n),
        workers=listed("--workers", whole, workers),
        nodes=nodes,
        rates=listed("--rates", link_rate, rates),
        density=listed("--density", number, density),
        steps=steps,
        warmup=warmup,
        seed=seed,
        check=check_choice(check),
        device=device_choice(device),
        budget_s=budget_s,
    )
    cases = plan(settings)
    results = ResultFile(json_path)

    def show(console: Console) -> None:
        for panel in panels(results.rows, ("n", "workers", "rate")):
            n, workers, rate = panel.settings.values()
            title = f"{n:,} elements, {workers} workers, {setting('rate', rate)}"
            show_table(console, title, HEADINGS, map(_cells, panel.rows))
        if len(results.rows) < len(cases):
            console.print(f"{len(results.rows)} of {len(cases)} cases measured")

    total = len(cases) * (steps + warmup)
    carry_out(total, lambda watcher: run(settings, results, watcher), show)


def _cells(row: Row) -> list[str]:
    phases, sent = row["seconds_by_phase"], row["bytes_sent_per_rank"]
    chosen = "" if row["decision"] is None else f": {', '.join(row['decision']['choice'])}"
    return [
        f"{row['recipe']}{chosen}",
        optional(row["density"], "g"),
        milliseconds(row["seconds"]),
        f"{milliseconds(row['seconds_min'])} … {milliseconds(row['seconds_max'])}",
        *(milliseconds(phases.get(phase)) for phase in PHASES),
        optional(None if sent is None else sent / 1000, ",.1f"),
        optional(row["speedup_over_dense"], ".2f"),
    ]
