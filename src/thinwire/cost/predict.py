"""How long a training step takes with a recipe: compute, exchange, and how they overlap."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

import torch

from thinwire.codec import Joint
from thinwire.collective import Dense
from thinwire.cost.buckets import PlannedUnit, Shape, units_of
from thinwire.cost.curves import Costs, Curve
from thinwire.cost.exchange import Load, Pattern, end_of_step
from thinwire.cost.network import Network
from thinwire.cost.patterns import exchange_cost, pattern
from thinwire.pipeline import Pipeline
from thinwire.settings import target_count
from thinwire.sparsify import BlockTopK, Everything, HashedSlots, PartitionTopK

CUDA = torch.device("cuda")
HEARD = 2.8e-3  # from the last kernel of an exchange to the optimiser's first (GPT-2, one trace)
ALIKE = 0.25  # of a selection that all ranks share: Ok-Topk, section 5.2, has 0.13 and 0.36


@dataclass(frozen=True, slots=True)
class UnitCost:
    """One unit's part of a step. `work` is selecting, encoding and decoding, the last `after`."""

    unit: PlannedUnit
    k: float
    work: float
    exchange: float
    sent: float
    after: float = 0.0

    @property
    def seconds(self) -> float:
        """All of it, one after the other."""
        return self.work + self.exchange

    def scaled(self, device: float, wire: float) -> "UnitCost":
        """With devices and network so many times as slow."""
        return replace(
            self,
            work=device * self.work,
            after=device * self.after,
            exchange=wire * self.exchange,
        )


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of a step, and the interval in which they are expected."""

    seconds: float
    low: float
    high: float
    sent: float  # bytes per rank on the sockets, Gloo's frames included; the mean over the ranks
    units: tuple[UnitCost, ...]

    @property
    def busy(self) -> float:
        """Seconds of exchange and what belongs to it, hidden or not."""
        return sum(cost.seconds for cost in self.units)


def predict(
    recipe: Pipeline,
    shapes: Mapping[str, Shape],
    workers: int,
    network: Network,
    costs: Costs | None = None,
    *,
    compute: float = 0.0,
    overlap: bool = True,
    work: Mapping[str, float] | None = None,
    alike: float = ALIKE,
) -> Prediction:
    """A step of `compute` seconds with a model of these shapes.

    Without `costs` the devices take no time: what remains is the network's. The interval takes all
    that is uncertain at once to its good or its bad end: the network by its spread, the devices by
    theirs, and how much the ranks' selections have in common.
    """
    planned = [
        (own, unit)
        for own, names in recipe.split(shapes)
        for unit in units_of(shapes, own.unit, own.bypass, work, own.joins, names)
    ]
    planned.sort(key=lambda of: of[1].ready)  # stable: what is ready together stays in order

    def step(share: float, sign: int) -> tuple[float, list[UnitCost]]:
        paid = [unit_cost(own, unit, workers, network, costs, share) for own, unit in planned]
        paid.append(_agreement(workers, network))
        wire = max(0.0, 1 + sign * network.spread)
        device = 1 if costs is None else max(0.0, 1 + sign * costs.spread)
        turns = [cost.scaled(device, wire) for cost in paid]
        seconds = step_seconds(turns, compute, several_at_once(recipe, network), overlap)
        return seconds + _heard(recipe, network), paid

    seconds, paid = step(alike, 0)
    (low, _), (high, _) = step(1.0, -1), step(0.0, +1)
    sent = sum(cost.sent for cost in paid)
    return Prediction(seconds, low, high, sent, tuple(c for c in paid if c.unit.names))


def expected_seconds(
    recipe: Pipeline,
    units: Sequence[PlannedUnit],
    workers: int,
    network: Network,
    costs: Costs | None,
    compute: float,
    overlap: bool = True,
) -> float:
    """As `predict`, the time alone. Units that are alike are computed once."""
    by_kind: dict[tuple[int, bool, tuple[Shape, ...]], UnitCost] = {}
    paid = []
    for unit in units:
        key = (unit.numel, unit.bypassed, unit.shapes)
        if key not in by_kind:
            by_kind[key] = unit_cost(recipe, unit, workers, network, costs)
        paid.append(replace(by_kind[key], unit=unit))
    turns = [*paid, _agreement(workers, network)]
    seconds = step_seconds(turns, compute, several_at_once(recipe, network), overlap)
    return seconds + _heard(recipe, network)


def several_at_once(recipe: Pipeline, network: Network) -> bool:
    """Whether units are queued on devices and all under way together, and no size is asked for."""
    return network.backend == "nccl" and recipe.is_steady(CUDA)


def _heard(recipe: Pipeline, network: Network) -> float:
    """Devices go on by themselves after plain sums; of all else the host must hear how it ended."""
    return 0.0 if recipe.is_plain_sum or network.backend != "nccl" else HEARD


def _agreement(workers: int, network: Network) -> UnitCost:
    """Over NCCL the answer rides along."""
    end = PlannedUnit((), 0, 1.0)
    if network.backend == "nccl":
        return UnitCost(end, 0, 0.0, 0.0, 0.0)
    asked = Pattern((end_of_step(workers),))
    return UnitCost(end, 0, 0.0, asked.seconds(network), asked.written(network.backend))


def step_seconds(
    turns: Sequence[UnitCost], compute: float, several: bool = False, overlap: bool = True
) -> float:
    """When the last unit is done, by the order in which they are ready.

    One ordered worker takes each from its selection to its update. Where `several` are under way,
    the wire takes one after the other while the device selects, decodes and computes; it is one
    device, so that what units work, what arrived is decoded too, comes on top of the compute.
    """
    if not overlap:
        return compute + sum(turn.seconds for turn in turns)
    if not several:
        now = 0.0
        for turn in turns:
            now = max(now, turn.unit.ready * compute) + turn.seconds
        return max(now, compute)
    worked, sent = 0.0, 0.0
    arrived: deque[tuple[float, float]] = deque()  # when, and what the device does with it then
    for turn in turns:
        while arrived and arrived[0][0] <= turn.unit.ready * compute + worked:
            worked += arrived.popleft()[1]
        worked += turn.work - turn.after
        sent = max(turn.unit.ready * compute + worked, sent) + turn.exchange
        arrived.append((sent, turn.after))
    end = compute + worked
    for at, after in arrived:
        end = max(end, at) + after
    return end


def unit_cost(
    recipe: Pipeline,
    unit: PlannedUnit,
    workers: int,
    network: Network,
    costs: Costs | None = None,
    alike: float = ALIKE,
) -> UnitCost:
    """What one unit takes: the network, and the device's work where its curves are known.

    Of a recipe that chooses, it is the cheapest of its alternatives.
    """
    if unit.bypassed:
        load = Load(workers, unit.numel, unit.numel)
        seconds, sent, _ = exchange_cost(Dense(), None, load, network)
        return UnitCost(unit, unit.numel, 0.0, seconds, sent)

    def cost_by(pipeline: Pipeline) -> UnitCost:
        steady = several_at_once(pipeline, network)
        load = load_of(pipeline, unit.numel, workers, alike, unit.past, steady)
        load = replace(load, shapes=unit.shapes, apart=_encoded_apart(pipeline, unit))
        if steady:
            load = replace(load, backend="nccl")
        seconds, sent, exchange = exchange_cost(pipeline.collective, pipeline.codec, load, network)
        curves = None if costs is None else costs.of(pipeline)
        before, after = (0.0, 0.0) if curves is None else _work(pipeline, load, exchange, curves)
        return UnitCost(unit, load.k, before + after, seconds, sent, after)

    return min(map(cost_by, recipe.alternatives), key=lambda cost: cost.seconds)


def _encoded_apart(recipe: Pipeline, unit: PlannedUnit) -> tuple[int, ...]:
    """The sizes of tensors that share a payload in which each is encoded by itself."""
    if not (recipe.joins and Joint.takes(recipe.codec)) or len(unit.shapes) < 2:
        return ()
    sizes = Counter(map(prod, unit.shapes)) - Counter(unit.past)
    return tuple(sizes.elements())


def load_of(
    recipe: Pipeline,
    numel: int,
    workers: int,
    alike: float = ALIKE,
    past: Sequence[int] = (),
    steady: bool = False,
) -> Load:
    """What a unit of so many elements brings to the exchange, those `past` the selection too.

    In a `steady` step padding travels as well.
    """
    in_blocks = isinstance(recipe.sparsifier, BlockTopK)  # of all tensors together
    chosen = _chosen(recipe, numel if in_blocks else numel - sum(past), workers, alike, steady)
    whole = sum(size + chosen.width - 1 for size in past)  # where a block begins is anywhere
    k = min(numel, chosen.k + whole)
    common = (chosen.alike * chosen.k + whole) / k if k else chosen.alike
    return replace(chosen, n=numel, k=k, alike=min(1.0, common))


def _chosen(recipe: Pipeline, numel: int, workers: int, alike: float, steady: bool) -> Load:
    """What is selected of so many elements."""
    sparsifier = recipe.sparsifier
    density = sparsifier.density
    if density is None or isinstance(sparsifier, Everything):
        return Load(workers, numel, numel)
    width = sparsifier.block if isinstance(sparsifier, BlockTopK) else 1
    k: float = min(numel, target_count(-(-numel // width), density, None) * width)
    if isinstance(sparsifier, HashedSlots) and k < numel:
        slots = ceil(sparsifier.slots * k)
        k = slots if steady else slots * (1 - (1 - 1 / slots) ** k)  # the others collide
    if isinstance(sparsifier, PartitionTopK) and sparsifier.own:
        return Load(workers, numel, k / workers, 0.0)  # nothing is two ranks'
    if sparsifier.shared:
        alike = 1.0  # random elements, the same on all ranks
    return Load(workers, numel, k, alike, width)


def _work(
    recipe: Pipeline, load: Load, exchange: Pattern, curves: Mapping[str, Curve]
) -> tuple[float, float]:
    """Before the exchange and after it. More ranks encode and decode more than one alone does."""
    single = pattern(recipe.collective, recipe.codec, replace(load, workers=1))
    encoded = load.k * _ratio(exchange.encoded, single.encoded)
    decoded = load.k * _ratio(exchange.decoded, single.decoded)
    calls = max(1, len(load.apart))
    local = curves["local"].seconds(load.n, load.k)
    encode = curves["encode"].seconds(load.n, encoded, calls)
    return local + encode, curves["decode"].seconds(load.n, decoded, calls)


def _ratio(more: float, single: float) -> float:
    return more / single if more and single else 1.0


def shortest_round(waited: float, compute: float, utilisation: float) -> int:
    """Steps between two exchanges, each waited for, that leave this share of the time to compute.

    >>> shortest_round(waited=2.0, compute=1.0, utilisation=0.95)
    38
    """
    share = utilisation / (1 - utilisation)
    return max(1, ceil(share * waited / compute * (1 - 1e-12)))  # 19 may be 19.000000000000004
