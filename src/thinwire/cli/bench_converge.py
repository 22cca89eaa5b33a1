"""`thinwire bench converge`."""

from pathlib import Path
from typing import Annotated, cast

from rich.console import Console
from typer import Option

from thinwire.cli.console import carry_out, show_table
from thinwire.cli.options import Budget, Check, Device, JsonPath, Nodes, Seed
from thinwire.cli.parse import check_choice, device_choice, link_rate, listed, number, split
from thinwire.errors import ThinwireError
from thinwire.format import milliseconds, optional, rate, setting
from thinwire.report.converge import FINAL, SETTINGS, final_loss, shown
from thinwire.report.panels import panels
from thinwire.results.file import ResultFile, Row

RATES = {"cpu": "100mbit,1gbit", "cuda": "100mbit,1gbit,10gbit,25gbit"}
HEADINGS = (
    *("recipe", "lr", "loss at the end", "gap", "steps to it", "s to it", "× bf16", "s to half"),
    *("ms per step", "MB per step"),
)


def converge(
    models: Annotated[
        str,
        Option(
            "--models",
            "--model",
            help="gpt2, transformer25m, resnet18, embedding; for a CPU transformer-small, "
            "resnet-small, embedding-small.",
        ),
    ] = "transformer-small",
    optimizers: Annotated[
        str, Option("--optimizers", "--optimizer", help="adamw, sgd; with warm-up and cosine.")
    ] = "adamw",
    recipes: Annotated[
        str, Option(help="Recipes and PyTorch's hooks (torch-…), separated by commas; or all.")
    ] = "",
    device: Device = "cpu",
    workers: Annotated[int, Option(min=1, help="Number of processes.")] = 4,
    nodes: Nodes = None,
    rates: Annotated[
        str, Option(help="Rates of the links to tell seconds for; none is unshaped loopback.")
    ] = "",
    density: Annotated[float, Option(help="What sparse recipes select.")] = 0.01,
    seeds: Annotated[int, Option(min=1, help="Runs of each recipe at its best learning rate.")] = 3,
    lrs: Annotated[
        str, Option(help="Learning rates to take the best of, for every recipe; by model.")
    ] = "",
    steps: Annotated[int | None, Option(min=1, help="Of each run; by model if not set.")] = None,
    examples: Annotated[
        int | None, Option(min=1, help="Of a rank in each step; by model if not set.")
    ] = None,
    every: Annotated[
        int | None, Option(min=1, help="Steps between two looks at the held-out part.")
    ] = None,
    text: Annotated[
        Path | None, Option(help="Text to read: a file or folder; else Python's own library.")
    ] = None,
    images: Annotated[
        Path | None, Option(help="A folder with a folder of images a class; else the digits.")
    ] = None,
    times: Annotated[
        list[Path] | None, Option(help="Results of `bench train --device` with step times.")
    ] = None,
    timed_steps: Annotated[int, Option(min=1, help="Steps to time at each rate.")] = 20,
    longest_step_s: Annotated[
        float, Option(min=0, help="Steps longer than this are computed from a faster rate.")
    ] = 10.0,
    case_s: Annotated[
        float, Option(min=0, help="Seconds of timed steps; longer ones are fewer.")
    ] = 30.0,
    deadline_s: Annotated[
        float, Option(min=1, help="Seconds after which a run without a word is given up.")
    ] = 300.0,
    verify: Annotated[
        str, Option(help="RECIPE@RATE to run there for real, from end to end, as topk@1gbit.")
    ] = "",
    seed: Seed = 0,
    check: Check = "refuse",
    budget_s: Budget = None,
    resume: Annotated[bool, Option(help="Keep what the --json file has, and do the rest.")] = False,
    json_path: JsonPath = None,
) -> None:
    """Time to a loss: which recipe is where bf16 ends first, by model, optimiser and rate."""
    from thinwire.bench.converge.plan import RECIPES, Settings, refuse_impossible, steps_to_do
    from thinwire.bench.converge.run import kept, run
    from thinwire.workloads.lessons import Optimizer

    if resume and json_path is None:
        raise ThinwireError("--resume goes on with the file of --json: name one")
    settings = Settings(
        device=device_choice(device),
        models=listed("--models", str, models),
        optimizers=cast(tuple[Optimizer, ...], listed("--optimizers", str, optimizers)),
        recipes=split(recipes) or RECIPES,
        workers=workers,
        nodes=nodes,
        rates=listed("--rates", link_rate, rates or RATES[device_choice(device)]),
        density=density,
        seeds=seeds,
        seed=seed,
        learning_rates=listed("--lrs", number, lrs) if lrs else (),
        steps=steps,
        examples=examples,
        every=every,
        timed_steps=timed_steps,
        longest_step_s=longest_step_s,
        case_s=case_s,
        deadline_s=deadline_s,
        verify=split(verify),
        check=check_choice(check),
        budget_s=budget_s,
        text=text,
        images=images,
        times=tuple(times or ()),
    )
    refuse_impossible(settings)
    results = ResultFile(json_path, rows=kept(json_path, settings) if resume else ())

    def show(console: Console) -> None:
        for panel in panels([r for r in results.rows if "reached" in r], (*SETTINGS, "rate")):
            show_table(console, _title(panel.rows[0]), HEADINGS, map(_cells, panel.rows))
        for row in results.rows:
            if "predicted_seconds" in row:
                console.print(_checked(row))

    carry_out(steps_to_do(settings), lambda watcher: run(settings, results, watcher), show)


def _title(row: Row) -> str:
    words = [row["model"], f"{row['parameters']:,} parameters", row["optimizer"]]
    words += [setting("workers", row["workers"]), setting("rate", row["rate"])]
    return ", ".join(words) + f"; target loss {row['reached'][FINAL]['loss']:.3f}"


def _cells(row: Row) -> list[str]:
    reached, half, sent = row["reached"][FINAL], row["reached"]["half"], row["bytes_per_step"]
    return [
        shown(row),
        f"{row['learning_rate']:g}",
        final_loss(row),
        optional(row["final_gap"], "+.3f"),
        optional(reached["steps"], ".0f") or "never",
        optional(reached["seconds"], ".2f"),
        optional(row["speedup"][FINAL], ".2f"),
        optional(half["seconds"], ".2f"),
        milliseconds(row["seconds_per_step"]),
        optional(None if sent is None else sent / 1e6, ",.2f"),
    ]


def _checked(row: Row) -> str:
    ratio = optional(row["real_over_predicted"], ".2f") or "no"
    return (
        f"{row['recipe']} at {rate(row['rate'])}, run from end to end: {row['real_seconds']:.1f} "
        f"s, {ratio} × the prediction; final loss {optional(row['final_loss'], '.3f')}"
    )
