"""`thinwire bench`: one subcommand a benchmark.

Hooked into the command line by `app.add_typer(bench, name="bench")`.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from thinwire.bench.codecs_command import codecs
from thinwire.bench.kernels_command import kernels
from thinwire.bench.train_command import train
from thinwire.errors import ThinwireError

PHASES = ("feedback", "select", "encode", "exchange", "decode", "other")

bench = typer.Typer(help="Measure: results as a table, and as JSON.", no_args_is_help=True)
bench.command()(codecs)
bench.command()(kernels)
bench.command()(train)


@bench.callback()
def _group() -> None:
    """Keeps `bench sync` a subcommand however many there are."""


@bench.command()
def sync(
    recipes: Annotated[
        str, typer.Option(help="Recipes and peers, separated by commas; all if empty.")
    ] = "",
    n: Annotated[str, typer.Option("--n", help="Elements of the gradient: 1m,25.6m.")] = "1m",
    workers: Annotated[str, typer.Option(help="Processes: 4,8.")] = "4",
    nodes: Annotated[int | None, typer.Option(min=1, help="By default one a worker.")] = None,
    rates: Annotated[str, typer.Option(help="Of the links; none is loopback.")] = "none,1gbit",
    density: Annotated[str, typer.Option(help="Of the recipes that have one.")] = "0.01",
    steps: Annotated[int, typer.Option(min=1, help="Timed steps of each case.")] = 5,
    warmup: Annotated[int, typer.Option(min=0, help="Steps before those.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the gradients and the recipes.")] = 0,
    check: Annotated[str, typer.Option(help="refuse, warn or skip, if a rate is off.")] = "refuse",
    json_path: Annotated[Path | None, typer.Option("--json", help="Results, as they come.")] = None,
) -> None:
    """Time one synchronisation: recipes and peers, by size, workers and rate."""
    from thinwire.bench.progress import plain_console, watch
    from thinwire.bench.sync import Settings, plan, run
    from thinwire.lab.command import check_choice
    from thinwire.results import ResultFile

    settings = Settings(
        recipes=split(recipes),
        n=tuple(elements(word) for word in split(n)),
        workers=tuple(elements(word) for word in split(workers)),
        nodes=nodes,
        rates=tuple(None if rate == "none" else rate for rate in split(rates)),
        density=tuple(number(word) for word in split(density)),
        steps=steps,
        warmup=warmup,
        seed=seed,
        check=check_choice(check),
    )
    console = plain_console()
    cases = plan(settings)
    results = ResultFile(json_path)
    shown, watcher = watch(console, len(cases) * (steps + warmup))
    failures: list[str] = []
    try:
        with shown:
            failures = run(settings, results, watcher)
    finally:
        show(console, results.rows)
        if len(results.rows) < len(cases):
            console.print(f"{len(results.rows)} of {len(cases)} cases measured")
    if failures:
        raise ThinwireError("\n".join(failures))


def show(console: Console, rows: list[dict[str, Any]]) -> None:
    """One table for each number of workers, rate and size."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["workers"], row["rate"], row["n"]), []).append(row)
    for (workers, rate, n), members in groups.items():
        where = "loopback" if rate is None else f"{rate:g} Mbit/s"
        title = f"{n:,} elements, {workers} workers, {where}"
        table = Table(title=title, box=box.SIMPLE, title_justify="left")
        table.add_column("recipe", no_wrap=True)
        for heading in ("density", "ms", "from … to", *PHASES, "KB sent", "× dense"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in members:
            table.add_row(*_cells(row))
        console.print(table)


def _cells(row: dict[str, Any]) -> list[str]:
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


def split(text: str) -> tuple[str, ...]:
    """Words between commas; commas within parentheses belong to the word.

    >>> split("dense, topk(0.01, coo=union(64, 'bf16'))")
    ('dense', "topk(0.01, coo=union(64, 'bf16'))")
    """
    words, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth <= 0:
            words.append("")
        else:
            words[-1] += letter
    return tuple(word.strip() for word in words if word.strip())


def elements(text: str) -> int:
    """A whole number: 1000000, 1m, 25.6m, 64k."""
    factor = {"k": 1e3, "m": 1e6, "g": 1e9}.get(text[-1:].lower())
    return round(number(text[:-1]) * factor) if factor else round(number(text))


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ThinwireError(f"{text!r} is not a number") from None
