"""`thinwire bench train`. Hooked into `bench` by `bench.command()(train)`."""

from typing import Annotated

import typer
from rich.console import Console

from thinwire.cli.console import carry_out, table
from thinwire.cli.options import Check, JsonPath, Nodes, Rates, Workers, read_time
from thinwire.cli.parse import link_rate, listed, split, whole
from thinwire.errors import ThinwireError
from thinwire.format import setting
from thinwire.results.file import ResultFile, Row

SHAPE_HEADINGS = ("compute", "exposed")
TASK_HEADINGS = ("steps", "loss", "s to target", "× dense")


def train(
    models: Annotated[
        str,
        typer.Option(
            help="Trained on data: digits, text, words; as shapes with declared compute: "
            "resnet18, resnet50, vgg16, gpt2, bert-base, vit-b16."
        ),
    ] = "resnet18,text",
    recipes: Annotated[
        str, typer.Option(help="Recipes and PyTorch's hooks (torch-…), separated by commas.")
    ] = "topk,ok-topk,union",
    workers: Workers = "4",
    nodes: Nodes = None,
    rates: Rates = "1gbit",
    overlap: Annotated[
        str, typer.Option(help="Exchange during (on) or after (off) the backward pass: on,off.")
    ] = "on",
    compute: Annotated[
        float | None,
        typer.Option(
            parser=read_time,
            metavar="TIME",
            help="Compute that a step is declared to take, as 100ms; by model if not set.",
        ),
    ] = None,
    density: Annotated[
        float | None,
        typer.Option(help="What sparse recipes select; if not set 0.01, and 0.05 on data."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of each run; by model if not set.")
    ] = None,
    warmup: Annotated[
        int, typer.Option(min=0, help="First steps that the median step leaves out.")
    ] = 2,
    target_loss: Annotated[
        float | None, typer.Option(help="Loss to reach; if not set what dense ends with.")
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate on data; by model if not set.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, data, gradients and recipes.")] = 0,
    check: Check = "refuse",
    json_path: JsonPath = None,
) -> None:
    """Time whole training steps, and how long a loss takes, by model, recipe and rate."""
    from thinwire.bench.train.plan import Settings, plan
    from thinwire.bench.train.run import run
    from thinwire.cli.lab import check_choice

    settings = Settings(
        models=listed("--models", str, models),
        recipes=split(recipes),
        workers=listed("--workers", whole, workers),
        nodes=nodes,
        rates=listed("--rates", link_rate, rates),
        overlap=listed("--overlap", _switch, overlap),
        density=density,
        compute=compute,
        steps=steps,
        warmup=warmup,
        target_loss=target_loss,
        learning_rate=lr,
        seed=seed,
        check=check_choice(check),
    )
    cases = plan(settings)
    results = ResultFile(json_path)

    def show_all(console: Console) -> None:
        ends = [row for row in results.rows if "step_seconds" in row]
        show(console, ends)
        if len(ends) < len(cases):
            console.print(f"{len(ends)} of {len(cases)} runs measured")

    total = sum(case.max_steps for case in cases)
    carry_out(total, lambda watcher: run(settings, results, watcher), show_all)


def _switch(word: str) -> bool:
    if word not in ("on", "off"):
        raise ThinwireError(f"{word!r} must be on or off, or on,off for both")
    return word == "on"


def show(console: Console, ends: list[Row]) -> None:
    """One table for each model, number of workers and rate; a line for the last row of each run."""
    groups: dict[tuple[str, int, float | None], list[Row]] = {}
    for row in ends:
        groups.setdefault((row["model"], row["workers"], row["rate"]), []).append(row)
    for (model, workers, rate), members in groups.items():
        where, count = setting("rate", rate), members[0]["parameters"]
        title = f"{model}, {count:,} parameters, {workers} workers, {where}"
        target = members[0]["target_loss"]
        title += "" if target is None else f"; target loss {target:.3f}"
        own = TASK_HEADINGS if _learns(members[0]) else SHAPE_HEADINGS
        headings = ("overlap", "step ms", "from … to", "MB a step", "× dense", *own)
        shown = table(title, "recipe", *headings)
        for row in members:
            shown.add_row(*_cells(row))
        console.print(shown)


def _cells(row: Row) -> list[str]:
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


def _learns(row: Row) -> bool:
    """Whether it was trained on data, and so has a loss."""
    return row["learning_rate"] is not None


def _number(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"
