"""`thinwire bench sync`. Hooked into `bench` by `bench.command()(sync)`."""

from typing import Annotated

import typer
from rich.console import Console

from thinwire.cli.console import carry_out, table
from thinwire.cli.options import Check, Densities, JsonPath, Nodes, Rates, Workers
from thinwire.cli.parse import elements, link_rate, listed, number, split, whole
from thinwire.format import setting
from thinwire.results.file import ResultFile, Row

PHASES = ("feedback", "select", "encode", "exchange", "decode", "other")


def sync(
    recipes: Annotated[
        str,
        typer.Option(help="Recipes and peers (torch-…), separated by commas; all if not set."),
    ] = "",
    n: Annotated[str, typer.Option("--n", help="Elements of the gradient: 1m,25.6m.")] = "1m",
    workers: Workers = "4",
    nodes: Nodes = None,
    rates: Rates = "none,1gbit",
    density: Densities = "0.01",
    steps: Annotated[int, typer.Option(min=1, help="Timed steps of each case.")] = 5,
    warmup: Annotated[int, typer.Option(min=0, help="Steps before the timed ones.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the gradients and the recipes.")] = 0,
    check: Check = "refuse",
    json_path: JsonPath = None,
) -> None:
    """Time one synchronisation: recipes and peers, by size, workers and rate."""
    from thinwire.bench.sync.run import Settings, plan, run
    from thinwire.cli.lab import check_choice

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
    )
    cases = plan(settings)
    results = ResultFile(json_path)

    def show_all(console: Console) -> None:
        show(console, results.rows)
        if len(results.rows) < len(cases):
            console.print(f"{len(results.rows)} of {len(cases)} cases measured")

    total = len(cases) * (steps + warmup)
    carry_out(total, lambda watcher: run(settings, results, watcher), show_all)


def show(console: Console, rows: list[Row]) -> None:
    """One table for each number of workers, rate and size."""
    groups: dict[tuple[int, float | None, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["workers"], row["rate"], row["n"]), []).append(row)
    for (workers, rate, n), members in groups.items():
        title = f"{n:,} elements, {workers} workers, {setting('rate', rate)}"
        headings = ("density", "ms", "from … to", *PHASES, "KB sent", "× dense")
        shown = table(title, "recipe", *headings)
        for row in members:
            shown.add_row(*_cells(row))
        console.print(shown)


def _cells(row: Row) -> list[str]:
    def ms(seconds: float | None) -> str:
        return "" if seconds is None else f"{1000 * seconds:.1f}"

    phases, gain = row["seconds_by_phase"], row["speedup_over_dense"]
    sent = row["bytes_sent_per_rank"]
    chosen = "" if row["decision"] is None else f": {', '.join(row['decision']['choice'])}"
    return [
        f"{row['recipe']}{chosen}",
        "" if row["density"] is None else f"{row['density']:g}",
        ms(row["seconds"]),
        f"{ms(row['seconds_min'])} … {ms(row['seconds_max'])}",
        *(ms(phases.get(phase)) for phase in PHASES),
        "" if sent is None else f"{sent / 1000:,.1f}",
        "" if gain is None else f"{gain:.2f}",
    ]
