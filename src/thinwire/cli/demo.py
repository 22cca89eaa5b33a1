"""`thinwire demo`."""

from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Option

from thinwire.cli.console import carry_out, show_table
from thinwire.cli.options import Device, JsonPath, Seed
from thinwire.cli.parse import device_choice, link_rate, split
from thinwire.results.file import ResultFile, write_whole


def demo(
    workers: Annotated[int, Option(min=2, max=64, help="Processes on this machine.")] = 4,
    recipes: Annotated[
        str, Option(help="Recipes and PyTorch's hooks, separated by commas; a few if not set.")
    ] = "",
    everything: Annotated[bool, Option("--all", help="Every recipe, and PyTorch's hooks.")] = False,
    steps: Annotated[int | None, Option(min=1, help="Steps of every run.")] = None,
    rate: Annotated[str, Option(help="Of each worker's link; none is the loopback.")] = "",
    seed: Seed = 0,
    device: Device = "cpu",
    out: Annotated[Path, Option(help="Folder for the page and numbers.")] = Path("runs/demo"),
    json: JsonPath = None,
) -> None:
    """Train a model over slow links, with and without compression: who has the loss first?"""
    from thinwire.bench.converge.plan import REPORT_EVERY
    from thinwire.demo.plan import SCENES, Settings, plan
    from thinwire.demo.run import refuse_without_packages, run
    from thinwire.lab import unavailable

    refuse_without_packages()
    on = device_choice(device)
    shaped = link_rate(rate or SCENES[on].rate)
    forbidden = unavailable() if shaped is not None else None
    settings = Settings(
        workers,
        split(recipes),
        everything,
        steps,
        None if forbidden else shaped,
        seed,
        on,
    )
    cases = plan(settings)
    results = ResultFile(json or out / "demo.json")

    def show(console: Console) -> None:
        from thinwire.demo.outcome import HEADINGS, outcome
        from thinwire.demo.page import NEXT, demo_page, introduction

        if not results.rows:
            return
        page, reached = out / "index.html", outcome(results.rows)
        write_whole(page, demo_page(results, settings))
        show_table(console, None, HEADINGS, reached.lines())
        about = introduction(results.rows, settings)
        if forbidden:
            about += f" (no shaped links here: {forbidden})"
        console.print(f"{about}\n", soft_wrap=True)
        console.print(f"[bold]{reached.sentence()}[/bold]\n", soft_wrap=True)
        console.print(f"Page: {page}\nNumbers: {results.path}\n", soft_wrap=True)
        for why, what in NEXT:
            console.print(f"{why}\n    {what}", soft_wrap=True, markup=False)

    names = [str(case) for case in cases]
    reports = settings.learning().steps_of(settings.scene.model) // REPORT_EVERY
    carry_out(reports, lambda watcher: run(settings, results, watcher), show, names)
