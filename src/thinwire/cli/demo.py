"""`thinwire demo`."""

from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Option

from thinwire.cli.console import carry_out, show_table
from thinwire.cli.options import Device, JsonPath, Seed
from thinwire.cli.parse import device_choice, split
from thinwire.results.file import ResultFile, write_whole


def demo(
    workers: Annotated[int, Option(min=1, max=64, help="Processes on this machine.")] = 4,
    recipes: Annotated[
        str, Option(help="Names, separated by commas; all but auto if not set.")
    ] = "",
    steps: Annotated[
        int | None, Option(min=1, help="Steps of every run; by task if not set.")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="About half of the steps.")] = False,
    seed: Seed = 0,
    seeds: Annotated[int, Option(min=1, help="How many seeds to run, from --seed on.")] = 1,
    density: Annotated[
        float, Option(help="Share of the elements that sparse recipes select.")
    ] = 0.05,
    device: Device = "cpu",
    out: Annotated[Path, Option(help="Folder for the page and numbers.")] = Path("runs/demo"),
    json: JsonPath = None,
) -> None:
    """Train two small models with every recipe, beside plain averaging, and draw a page."""
    from thinwire.demo.plan import BASELINE, Settings, plan
    from thinwire.demo.run import refuse_without_packages, run

    refuse_without_packages()
    on = device_choice(device)
    settings = Settings(workers, split(recipes), steps, quick, seed, density, seeds, on)
    total = sum(case.steps for case in plan(settings))
    results = ResultFile(json or out / "demo.json")

    def show(console: Console) -> None:
        from thinwire.demo.page import CAVEAT, demo_page, training_notes
        from thinwire.demo.table import headings, lines, summarise
        from thinwire.workloads.tasks import TASKS

        if not results.rows:
            return
        page = out / "index.html"
        write_whole(page, demo_page(results, settings))
        for model, summaries in summarise(results.rows).items():
            cells = lines(summaries, BASELINE)
            show_table(console, TASKS[model].title, headings(summaries), cells)
        notes = f"{training_notes(results.rows, settings)}\n{CAVEAT}"
        console.print(f"{notes}\n\nPage: {page}\nNumbers: {results.path}", soft_wrap=True)

    carry_out(total, lambda watcher: run(settings, results, watcher), show)
