"""What `auto` expects of each choice before it tries one."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from thinwire.auto.rules import BY, DENSE
from thinwire.comm import GroupCommunicator, Nodes
from thinwire.cost.buckets import PlannedUnit, Shape, units_of
from thinwire.cost.estimate import estimated_costs, measure_speed
from thinwire.cost.network import Network
from thinwire.cost.predict import expected_seconds
from thinwire.cost.probe import measure_network
from thinwire.pipeline import Pipeline
from thinwire.types import Codec

PROBE = 0.5  # of a dense step's time: what measuring the network may take
HALVINGS = 40


class Forecast(NamedTuple):
    """Seconds of a whole step by each choice, and what they were computed from."""

    steps: dict[str, float]
    network: Network
    compute: float  # seconds of a step that are no exchange


def method_of(label: str) -> str:
    """What variants of a method share: the label without unit and codec."""
    return label.split(" | ")[0].split(BY)[0]


def predicted_steps(
    pipelines: Mapping[str, Pipeline],
    shapes: Mapping[str, Shape],
    dense: float,
    comm: GroupCommunicator,
    device: torch.device,
    nodes: Nodes | None,
    overlap: bool,
) -> Forecast:
    """What a step takes by each choice, where a dense one takes `dense`.

    `shapes` are in the order of the forward pass. The network is measured every time: it may be
    another than yesterday's. What a dense step took beside its exchange is the compute.
    """
    network = measure_network(comm, device, nodes, seconds=PROBE * dense)
    speed = measure_speed(comm, device)
    costs = estimated_costs(pipelines.values(), device, speed, tuple(shapes.values()))
    planned: dict[tuple[str, int, bool], list[PlannedUnit]] = {}

    def seconds(label: str, compute: float) -> float:
        recipe = pipelines[label]
        key = (recipe.unit, recipe.bypass, recipe.joins)
        if key not in planned:
            planned[key] = units_of(shapes, recipe.unit, recipe.bypass, joins=recipe.joins)
        units = planned[key]
        return expected_seconds(recipe, units, comm.size, network, costs, compute, overlap)

    compute = _inverse(lambda c: seconds(DENSE, c), dense)
    off = dense / seconds(DENSE, compute)  # where the exchange alone would take longer
    tried = [label for label, recipe in pipelines.items() if _is_worth_a_trial(recipe, device)]
    return Forecast({label: off * seconds(label, compute) for label in tried}, network, compute)


def _is_worth_a_trial(recipe: Pipeline, device: torch.device) -> bool:
    """On a GPU the host would have to ask for every size that nobody can know beforehand."""
    asks = isinstance(recipe.codec, Codec) and not recipe.codec.is_steady
    return device.type != "cuda" or not asks


def _inverse(growing: Callable[[float], float], value: float) -> float:
    """Where a growing function of at least its argument has a value; 0 if it begins above."""
    low, high = 0.0, value
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if growing(middle) < value else (low, middle)
    return low
