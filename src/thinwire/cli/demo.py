"""`thinwire demo`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from thinwire.cli.console import carry_out, show_table
from thinwire.cli.options import JsonPath, Seed
from thinwire.cli.parse import split
from thinwire.results.file import ResultFile, Row, write_whole


def demo(
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes on this machine.")] = 4,
    recipes: Annotated[
        str, typer.Option(help="Names, separated by commas; all but auto if not set.")
    ] = "",
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of every run; by task if not set.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A third of the steps.")] = False,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run, from --seed on.")] = 1,
    density: Annotated[
        float, typer.Option(help="Share of the elements that sparse recipes select.")
    ] = 0.05,
    out: Annotated[Path, typer.Option(help="Folder for the page and numbers.")] = Path("runs/demo"),
    json: JsonPath = None,
) -> None:
    """Train two small models with every recipe, beside plain averaging, and draw a page."""
    from thinwire.demo.plan import Settings, plan
    from thinwire.demo.run import refuse_without_packages, run

    refuse_without_packages()
    settings = Settings(workers, split(recipes), steps, quick, seed, density, seeds)
    total = sum(case.steps for case in plan(settings))
    results = ResultFile(json or out / "demo.json")

    def show(console: Console) -> None:
        from thinwire.demo.page import CAVEAT, demo_page, training_notes

        if not results.rows:
            return
        page = out / "index.html"
        write_whole(page, demo_page(results, settings))
        show_tables(console, results.rows)
        notes = f"{training_notes(results.rows, settings)}\n{CAVEAT}"
        console.print(f"{notes}\n\nPage: {page}\nNumbers: {results.path}", soft_wrap=True)

    carry_out(total, lambda watcher: run(settings, results, watcher), show)


def show_tables(console: Console, rows: list[Row]) -> None:
    """One table per task; bytes are those that one rank sends."""
    from thinwire.demo.plan import BASELINE
    from thinwire.demo.table import headings, lines, summarise
    from thinwire.workloads.tasks import TASKS

    for model, summaries in summarise(rows).items():
        title = TASKS[model].title
        show_table(console, title, headings(summaries), lines(summaries, BASELINE))
