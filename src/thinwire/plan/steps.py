"""Predicted steps of one model with many recipes, as rows and as a table."""

from collections.abc import Mapping

from rich.console import Console

from thinwire.cli.console import table
from thinwire.cost.curves import Costs
from thinwire.cost.network import Network
from thinwire.cost.predict import Prediction, predict
from thinwire.format import duration, short
from thinwire.pipeline import Pipeline
from thinwire.plan.models import Model
from thinwire.results.file import Row


def predictions(
    recipes: Mapping[str, Pipeline],
    model: Model,
    workers: int,
    network: Network,
    costs: Costs | None,
    overlap: bool = True,
) -> dict[str, Prediction]:
    """A step with each recipe, the fastest first."""
    made = {
        name: predict(
            recipe,
            model.shapes,
            workers,
            network,
            costs,
            compute=model.compute,
            overlap=overlap,
            work=model.work,
        )
        for name, recipe in recipes.items()
    }
    return dict(sorted(made.items(), key=lambda item: item[1].seconds))


def step_rows(
    made: Mapping[str, Prediction], model: Model, workers: int, network: Network
) -> list[Row]:
    """One row a recipe."""
    dense = made["dense"].seconds
    return [
        {
            "recipe": name,
            "model": model.name,
            "n": model.numel,
            "workers": workers,
            "alpha": network.link.alpha,
            "beta": network.link.beta,
            "compute_seconds": model.compute,
            "step_seconds": p.seconds,
            "step_seconds_low": p.low,
            "step_seconds_high": p.high,
            "busy_seconds": p.busy,
            "bytes_per_rank": p.sent,
            "speedup_over_dense": dense / p.seconds if p.seconds else None,
        }
        for name, p in made.items()
    ]


def show_steps(console: Console, title: str, rows: list[Row]) -> None:
    """Steps, the fastest first."""
    shown = table(
        title, "recipe", "step", "from … to", "exchange and work", "bytes a rank", "× dense"
    )
    for row in rows:
        low, high = duration(row["step_seconds_low"]), duration(row["step_seconds_high"])
        gain = row["speedup_over_dense"]
        shown.add_row(
            row["recipe"],
            duration(row["step_seconds"]),
            f"{low} … {high}",
            duration(row["busy_seconds"]),
            short(row["bytes_per_rank"]),
            "" if gain is None else f"{gain:.2f}",
        )
    console.print(shown)
