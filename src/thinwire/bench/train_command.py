"""`thinwire bench train`. Hooked into `bench` by `bench.command()(train)`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from thinwire.errors import ThinwireError

SHAPE_HEADINGS = ("compute", "exposed")
TASK_HEADINGS = ("steps", "loss", "s to target", "× dense")


def train(
    models: Annotated[
        str,
        typer.Option(
            help="digits, text, words; resnet18, resnet50, vgg16, gpt2, bert-base, vit-b16."
        ),
    ] = "resnet18,text",
    recipes: Annotated[
        str, typer.Option(help="Recipes and PyTorch's hooks, separated by commas.")
    ] = "topk,ok-topk,union",
    workers: Annotated[str, typer.Option(help="Processes: 4,8.")] = "4",
    nodes: Annotated[int | None, typer.Option(min=1, help="By default one a worker.")] = None,
    rates: Annotated[str, typer.Option(help="Of the links; none is loopback.")] = "1gbit",
    overlap: Annotated[
        str, typer.Option(help="on, off or both: exchange during or after the backward pass.")
    ] = "on",
    compute: Annotated[
        str,
        typer.Option(help="Declared time a step, as 100ms; by model if empty."),
    ] = "",
    density: Annotated[
        float | None, typer.Option(help="By default 0.01, and 0.05 for digits and text.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Of each run; by model.")] = None,
    warmup: Annotated[int, typer.Option(min=0, help="First steps not in the median step.")] = 2,
    target_loss: Annotated[
        float | None,
        typer.Option(help="By default what dense ends with."),
    ] = None,
    lr: Annotated[float | None, typer.Option(help="For digits and text; by model.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, data, gradients and recipes.")] = 0,
    check: Annotated[str, typer.Option(help="refuse, warn or skip, if a rate is off.")] = "refuse",
    json_path: Annotated[Path | None, typer.Option("--json", help="Results, as they come.")] = None,
) -> None:
    """Time whole training steps, and how long a loss takes, by model, recipe and rate."""
    from thinwire.bench.command import elements, split
    from thinwire.bench.progress import plain_console, watch
    from thinwire.bench.train import run
    from thinwire.bench.train_plan import Settings, plan
    from thinwire.lab.command import check_choice
    from thinwire.lab.shape import seconds
    from thinwire.results import ResultFile

    settings = Settings(
        models=split(models),
        recipes=split(recipes),
        workers=tuple(elements(word) for word in split(workers)),
        nodes=nodes,
        rates=tuple(None if rate == "none" else rate for rate in split(rates)),
        overlap=tuple(_switch(word) for word in split(overlap)),
        density=density,
        compute=seconds(compute) if compute else None,
        steps=steps,
        warmup=warmup,
        target_loss=target_loss,
        learning_rate=lr,
        seed=seed,
        check=check_choice(check),
    )
    console = plain_console()
    cases = plan(settings)
    results = ResultFile(json_path)
    shown, watcher = watch(console, sum(case.max_steps for case in cases))
    failures: list[str] = []
    try:
        with shown:
            failures = run(settings, results, watcher)
    finally:
        ends = [row for row in results.rows if "step_seconds" in row]
        show(console, ends)
        if len(ends) < len(cases):
            console.print(f"{len(ends)} of {len(cases)} runs measured")
    if failures:
        raise ThinwireError("\n".join(failures))


def _switch(word: str) -> bool:
    if word not in ("on", "off"):
        raise ThinwireError(f"overlap={word!r} must be on or off, or on,off for both")
    return word == "on"


def show(console: Console, ends: list[dict[str, Any]]) -> None:
    """One table for each model, number of workers and rate; a line for the last row of each run."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in ends:
        groups.setdefault((row["model"], row["workers"], row["rate"]), []).append(row)
    for (model, workers, rate), members in groups.items():
        where = "loopback" if rate is None else f"{rate:g} Mbit/s"
        count = members[0]["parameters"]
        title = f"{model}, {count:,} parameters, {workers} workers, {where}"
        target = members[0]["target_loss"]
        title += "" if target is None else f"; target loss {target:.3f}"
        table = Table(title=title, box=box.SIMPLE, title_justify="left")
        table.add_column("recipe", no_wrap=True)
        own = TASK_HEADINGS if _learns(members[0]) else SHAPE_HEADINGS
        for heading in ("overlap", "step ms", "from … to", "MB a step", "× dense", *own):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in members:
            table.add_row(*_cells(row))
        console.print(table)


def _cells(row: dict[str, Any]) -> list[str]:
    def ms(seconds: float) -> str:
        return f"{1000 * seconds:.1f}"

    density, sent = row["density"], row["bytes_sent_per_rank"]
    cells = [
        row["recipe"] + ("" if density is None else f"({density:g})"),
        "on" if row["overlap"] else "off",
        ms(row["step_seconds"]),
        f"{ms(row['step_seconds_min'])} … {ms(row['step_seconds_max'])}",
        _number(None if sent is None else sent / row["steps"] / 1e6, ",.2f"),
        _number(row["speedup_over_dense"], ".2f"),
    ]
    if not _learns(row):
        return [*cells, ms(row["compute_seconds"]), ms(row["exposed_seconds"])]
    return [
        *cells,
        str(row["steps"]),
        _number(row["final_loss"], ".3f"),
        _number(row["seconds_to_target"], ".2f") or "never",
        _number(row["speedup_to_target"], ".2f"),
    ]


def _learns(row: dict[str, Any]) -> bool:
    """Whether it was trained on data, and so has a loss."""
    return row["learning_rate"] is not None


def _number(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"
