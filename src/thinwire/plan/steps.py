"""Predictions as rows: training steps of one model, its tensors, and single exchanges."""

from collections.abc import Iterator, Mapping, Sequence

from thinwire.cost.curves import Costs
from thinwire.cost.network import Network
from thinwire.cost.predict import Prediction, predict, unit_cost
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
    steps = {
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
    return dict(sorted(steps.items(), key=lambda item: item[1].seconds))


def step_rows(
    steps: Mapping[str, Prediction], model: Model, workers: int, network: Network
) -> list[Row]:
    """One row for each recipe."""
    dense = steps["dense"].seconds
    return [
        {
            "recipe": name,
            "model": model.name,
            "n": model.numel,
            "workers": workers,
            "alpha": network.link.alpha,
            "beta": network.link.beta,
            "compute_seconds": model.compute,
            "step_seconds": step.seconds,
            "step_seconds_low": step.low,
            "step_seconds_high": step.high,
            "busy_seconds": step.busy,
            "bytes_per_rank": step.sent,
            "speedup_over_dense": dense / step.seconds if step.seconds else None,
        }
        for name, step in steps.items()
    ]


def tensor_rows(
    name: str,
    step: Prediction,
    dense: Pipeline,
    workers: int,
    network: Network,
    costs: Costs | None,
) -> list[Row]:
    """Each unit of a step with the recipe `name`, beside the same unit sent dense."""
    return [
        {
            "recipe": name,
            "tensor": _label(cost.unit.names),
            "tensors": len(cost.unit.names),
            "n": cost.unit.numel,
            "k": cost.k,
            "unit_seconds": cost.seconds,
            "work_seconds": cost.work,
            "exchange_seconds": cost.exchange,
            "dense_seconds": unit_cost(dense, cost.unit, workers, network, costs).seconds,
            "bytes_per_rank": cost.sent,
            "bypassed": cost.unit.bypassed,
        }
        for cost in step.units
    ]


def _label(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def exchange_rows(
    recipes: Mapping[str, Pipeline],
    workers: Sequence[int],
    network: Network,
    model: Model,
    alike: float,
) -> Iterator[Row]:
    """One exchange with each recipe and number of workers, without the compute."""
    for name, recipe in recipes.items():
        for count in workers:
            exchange = predict(recipe, model.shapes, count, network, alike=alike)
            yield {
                "recipe": name,
                "workers": count,
                "alpha": network.link.alpha,
                "beta": network.link.beta,
                "n": model.numel,
                "density": recipe.sparsifier.density,
                "seconds": exchange.busy,
                "bytes_per_rank": sum(unit.sent for unit in exchange.units),
                "model": model.name,
                "node_size": network.node_size,
                "alike": alike,
            }
