"""`thinwire bench train`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Option

from thinwire.cli.bench_steps import train_real
from thinwire.cli.console import carry_out, show_table
from thinwire.cli.options import (
    Budget,
    Check,
    Device,
    JsonPath,
    Nodes,
    Rates,
    Seed,
    Workers,
    time_option,
)
from thinwire.cli.parse import check_choice, link_rate, listed, split, switch, whole
from thinwire.errors import ThinwireError
from thinwire.format import milliseconds, optional, setting
from thinwire.report.panels import panels
from thinwire.results.file import ResultFile, Row

HEADINGS = ("recipe", "overlap", "step ms", "from … to", "MB per step", "× dense")
SHAPE_HEADINGS = ("compute", "exposed")
TASK_HEADINGS = ("steps", "loss", "s to target", "× dense")


def train(
    models: Annotated[
        str,
        Option(
            "--models",
            "--model",
            help="Trained on data: digits, text, words; as shapes with declared compute: "
            "resnet18, resnet50, vgg16, gpt2, bert-base, vit-b16. With --device, for real: gpt2, "
            "resnet50, bert, transformer25m, and each with -tiny.",
        ),
    ] = "",
    recipes: Annotated[
        str, Option(help="Recipes and PyTorch's hooks (torch-…), separated by commas; or all.")
    ] = "",
    device: Device = "",
    workers: Workers = "4",
    nodes: Nodes = None,
    rates: Rates = "1gbit",
    overlap: Annotated[
        str | None,
        Option(
            help="Exchange during (on) or after (off) the backward pass: on,off.",
            show_default="on",
        ),
    ] = None,
    compute: Annotated[
        float | None,
        time_option("Compute that a step is declared to take, as 100ms; by model if not set."),
    ] = None,
    density: Annotated[
        float | None, Option(help="What sparse recipes select; if not set 0.01, and 0.05 on data.")
    ] = None,
    steps: Annotated[
        int | None, Option(min=1, help="Steps of each run; by model if not set.")
    ] = None,
    warmup: Annotated[
        int | None,
        Option("--warmup", "--warm-up", min=0, help="First steps that the median leaves out."),
    ] = None,
    target_loss: Annotated[
        float | None, Option(help="Loss to reach; if not set what dense ends with.")
    ] = None,
    lr: Annotated[float | None, Option(help="Learning rate on data; by model if not set.")] = None,
    seed: Seed = 0,
    check: Check = "refuse",
    budget_s: Budget = None,
    case_s: Annotated[
        float | None,
        Option(
            min=0,
            help="With --device: seconds of a case; longer ones do fewer steps.",
            show_default="30",
        ),
    ] = None,
    deadline_s: Annotated[
        float | None,
        Option(
            min=1, help="With --device: seconds after which a case is given up.", show_default="120"
        ),
    ] = None,
    trace: Annotated[
        Path | None, Option(help="With --device: write a timeline of one step here as JSON.")
    ] = None,
    json_path: JsonPath = None,
) -> None:
    """Time whole training steps, and how long a loss takes, by model, recipe and rate."""
    if device:
        others = {"overlap": overlap, "compute": compute, "target-loss": target_loss, "lr": lr}
        _refuse_idle(others, "with --device: real models overlap, compute and learn as they do")
        train_real(
            device,
            models or "gpt2",
            recipes,
            json_path,
            trace,
            workers=listed("--workers", whole, workers),
            nodes=nodes,
            rates=listed("--rates", link_rate, rates),
            density=0.01 if density is None else density,
            steps=steps or 100,
            warmup=20 if warmup is None else warmup,
            seed=seed,
            check=check_choice(check),
            case_s=30.0 if case_s is None else case_s,
            deadline_s=120.0 if deadline_s is None else deadline_s,
            budget_s=budget_s,
        )
        return
    _refuse_idle({"case-s": case_s, "deadline-s": deadline_s, "trace": trace}, "without --device")
    from thinwire.bench.train.plan import Settings, plan
    from thinwire.bench.train.run import run

    settings = Settings(
        models=listed("--models", str, models or "resnet18,text"),
        recipes=split(recipes or "topk,ok-topk,union"),
        workers=listed("--workers", whole, workers),
        nodes=nodes,
        rates=listed("--rates", link_rate, rates),
        overlap=listed("--overlap", switch, "on" if overlap is None else overlap),
        density=density,
        compute=compute,
        steps=steps,
        warmup=2 if warmup is None else warmup,
        target_loss=target_loss,
        learning_rate=lr,
        seed=seed,
        check=check_choice(check),
        budget_s=budget_s,
    )
    cases = plan(settings)
    results = ResultFile(json_path)

    def show(console: Console) -> None:
        ends = [row for row in results.rows if "step_seconds" in row]
        _show_panels(console, ends)
        if len(ends) < len(cases):
            console.print(f"{len(ends)} of {len(cases)} runs measured")

    total = sum(case.max_steps for case in cases)
    carry_out(total, lambda watcher: run(settings, results, watcher), show)


def _refuse_idle(options: Mapping[str, object], when: str) -> None:
    """Those that were given, though nothing would come of them."""
    for name, value in options.items():
        if value is not None:
            raise ThinwireError(f"--{name} does nothing {when}; leave it away")


def _show_panels(console: Console, ends: list[Row]) -> None:
    """One table for each model, number of workers and rate; a line for the last row of each run."""
    for panel in panels(ends, ("model", "workers", "rate")):
        model, workers, rate = panel.settings.values()
        first = panel.rows[0]
        title = f"{model}, {first['parameters']:,} parameters, {workers} workers, "
        title += setting("rate", rate)
        if first["target_loss"] is not None:
            title += f"; target loss {first['target_loss']:.3f}"
        own = TASK_HEADINGS if _learns(first) else SHAPE_HEADINGS
        show_table(console, title, (*HEADINGS, *own), map(_cells, panel.rows))


def _cells(row: Row) -> list[str]:
    density, sent = row["density"], row["bytes_sent_per_rank"]
    cells = [
        row["recipe"] + ("" if density is None else f"({density:g})"),
        "on" if row["overlap"] else "off",
        milliseconds(row["step_seconds"]),
        f"{milliseconds(row['step_seconds_min'])} … {milliseconds(row['step_seconds_max'])}",
        optional(None if sent is None else sent / row["steps"] / 1e6, ",.2f"),
        optional(row["speedup_over_dense"], ".2f"),
    ]
    if not _learns(row):
        return [*cells, milliseconds(row["compute_seconds"]), milliseconds(row["exposed_seconds"])]
    return [
        *cells,
        str(row["steps"]),
        optional(row["final_loss"], ".3f"),
        optional(row["seconds_to_target"], ".2f") or "never",
        optional(row["speedup_to_target"], ".2f"),
    ]


def _learns(row: Row) -> bool:
    """Whether it was trained on data, and so has a loss."""
    return row["learning_rate"] is not None
