"""Cost models take the decisions of the collectives they describe: changed once, both follow.

Bytes are compared with those of real runs in test_exchange.py. Covers cost/patterns.py.
"""

import dataclasses
import math
from collections.abc import Iterator

import pytest
import torch

from thinwire.auto import Auto
from thinwire.codec import Pair
from thinwire.codec.index import RiceIndex
from thinwire.codec.value import Bf16Value
from thinwire.collective import (
    Dense,
    FewBits,
    GTopK,
    LowRank,
    OkTopK,
    SparCML,
    _factoring,
    dense,
    touched,
)
from thinwire.collective._tree import neighbours
from thinwire.collective.oktopk import regions, threshold
from thinwire.collective.oktopk.split import split_and_reduce
from thinwire.collective.touched import LISTS_FROM, agree
from thinwire.comm import messages
from thinwire.cookbook import recipe
from thinwire.cost.calibration import calibrate
from thinwire.cost.exchange import (
    FRAME,
    Load,
    Pattern,
    Stage,
    allreduce,
    equal_to_all,
    equal_to_each,
    gather_numbers,
    to_all,
)
from thinwire.cost.network import Link, Network
from thinwire.cost.patterns import _agreement, boundary_stages, pattern, threshold_stages
from thinwire.cost.predict import predict
from thinwire.cost.wire_size import alone, dense_wire_bytes
from thinwire.errors import RecipeError
from thinwire.types import AnyCodec, Collective, ExchangeContext, Reduced, Selection, Sparse

BLOCK = 2
RAW = Pair()
SIZES = [2, 3, 4, 8, 16, 17, 64, 255, 256]


class Alike:
    """All of many ranks at once, each of which brings what this one does; keeps what they send."""

    rank = 0

    def __init__(self, size: int) -> None:
        self.size, self.stages, self.started = size, list[Stage](), 0

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        self.stages.append(to_all(self.size, tensor.nbytes))
        return [tensor] * self.size

    def all_gather_equal(self, tensor: torch.Tensor) -> torch.Tensor:
        self.stages.append(equal_to_all(self.size, tensor.nbytes))
        return torch.stack([tensor] * self.size)

    def all_to_all_equal(self, rows: torch.Tensor) -> torch.Tensor:
        self.stages.append(equal_to_each(self.size, rows[0].nbytes))
        return rows[:1].expand_as(rows).contiguous()

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        self.stages.append(allreduce(self.size, tensor.nbytes))
        return tensor.mul_(self.size)

    def all_gather_meta(self, numbers: list[int]) -> list[list[int]]:
        self.stages.append(gather_numbers(self.size, len(numbers)))
        return [numbers] * self.size

    def exchange(self, outgoing: object, incoming: dict[int, torch.Tensor]) -> None:
        for buffer in incoming.values():
            buffer.zero_()

    def start(self, outgoing: object, incoming: object) -> "Alike":
        self.started += 1
        return self

    def wait(self) -> None:
        pass


def context(comm: object) -> ExchangeContext:
    return ExchangeContext(tensor="t", step=0, seed=0, comm=comm)


# How union and sketch agree on blocks.


def agrees_alike(size: int, blocks: int, share: float) -> tuple[Stage, ...]:
    """What the collective sends for `share` of the blocks, which the model must name."""
    mine = round(share * blocks)
    indices = torch.arange(mine) * (blocks // mine) * BLOCK
    comm, n = Alike(size), blocks * BLOCK
    union = agree(Sparse(indices, torch.ones(mine), n), BLOCK, context(comm))
    assert torch.equal(union.blocks, indices // BLOCK)
    predicted = _agreement(Load(size, n, mine * BLOCK, 1.0, BLOCK), BLOCK)
    assert comm.stages == list(predicted)
    return predicted


@pytest.mark.parametrize("size", [2, 16, 17, 64, 255, 256])
@pytest.mark.parametrize("blocks", [1000, LISTS_FROM, 4 * LISTS_FROM])
@pytest.mark.parametrize("share", [0.001, 0.02, 0.5])
def test_the_model_agrees_on_blocks_as_the_collective_does(
    size: int, blocks: int, share: float
) -> None:
    agrees_alike(size, blocks, share)


def test_all_three_ways_to_agree_are_taken() -> None:
    def sent(size: int, blocks: int, mine: int) -> Stage:
        return _agreement(Load(size, blocks * BLOCK, mine * BLOCK, 1.0, BLOCK), BLOCK)[-1]

    assert sent(16, 1000, 1) == equal_to_all(16, 125)  # bitmaps
    assert sent(64, 1000, 1) == equal_to_all(64, 125)  # flags are fewer bytes, and 126 rounds
    many = 4 * LISTS_FROM
    assert sent(64, many, many // 2) == allreduce(64, many)  # flags
    assert sent(17, LISTS_FROM, 10) == to_all(17, 40)  # lists


def test_a_change_in_how_ranks_agree_reaches_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    before = agrees_alike(17, 1000, 0.002)
    monkeypatch.setattr(touched, "LISTS_FROM", 100)
    lists = agrees_alike(17, 1000, 0.002)
    monkeypatch.setattr(touched, "LISTS_FROM", 10**9)
    monkeypatch.setattr(touched, "ROUND", 0)
    flags = agrees_alike(17, 1000, 0.002)
    assert len({before, lists, flags}) == 3


# When SparCML's regions become dense.


def goes_dense_alike(collective: SparCML, codec: Pair, size: int, filled: float) -> bool:
    """Whether a region so full goes dense in the collective, and in the model as well."""
    numel = 20_000
    indices = torch.arange(round(filled * numel)) * numel // round(filled * numel)
    values = torch.randn(indices.numel(), generator=torch.Generator().manual_seed(0))
    total, _ = collective._shorter(Sparse(indices, values, numel), codec, context(alone()))
    load = Load(size, size * numel, size * indices.numel(), alike=1.0)
    predicted = pattern(collective, codec, load).stages[1]
    goes_dense = not isinstance(total, Sparse)
    assert (predicted == to_all(size, dense_wire_bytes(codec, numel))) == goes_dense
    return goes_dense


RICE = Pair(RiceIndex(), Bf16Value())


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("codec", [RAW, RICE], ids=["raw", "rice+bf16"])
@pytest.mark.parametrize("limit", [None, 0.3])
def test_the_model_fills_a_region_as_sparcml_does(
    size: int, codec: Pair, limit: float | None
) -> None:
    grid = (0.01, 0.1, 0.28, 0.32, 0.45, 0.6, 0.9, 0.99)
    chosen = [goes_dense_alike(SparCML(limit), codec, size, filled) for filled in grid]
    assert True in chosen and False in chosen


def test_a_change_in_when_sparcml_goes_dense_reaches_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for answer in (True, False):
        monkeypatch.setattr(SparCML, "goes_dense", lambda *_, answer=answer: answer)
        assert goes_dense_alike(SparCML(), RAW, 4, 0.2) is answer


# Collectives that are not ours.


def test_a_collective_without_a_cost_model_is_refused_in_one_line_before_anything_runs() -> None:
    @dataclasses.dataclass(frozen=True)
    class Own(Collective):
        def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
            raise NotImplementedError

    foreign = dataclasses.replace(recipe("topk"), collective=Own())
    attempts = (
        lambda: predict(foreign, {"w": (2000,)}, 4, Network(Link(1e-4, 1e-9))),
        lambda: calibrate(alone(), [foreign], torch.device("cpu")),
        lambda: Auto.between(recipe("dense"), {"own": foreign}),
    )
    for attempt in attempts:
        with pytest.raises(RecipeError) as caught:
            attempt()
        (line,) = str(caught.value).splitlines()
        assert "Own() has no cost model" in line
        assert "thinwire.cost.patterns.pattern.register" in line

    @pattern.register
    def _own(collective: Own, codec: object, load: Load) -> Pattern:
        return Pattern((to_all(load.workers, 100),), load.k, load.k)

    (unit,) = predict(foreign, {"w": (2000,)}, 4, Network(Link(1e-4, 1e-9))).units
    assert unit.sent == 3 * (108 + FRAME)
    Auto.between(recipe("dense"), {"own": foreign})


# The rest.


@pytest.mark.parametrize("dtype", dense.WIRE_DTYPES)
def test_the_model_sends_the_bytes_of_dense_s_wire(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both_send() -> list[Stage]:
        comm = Alike(4)
        Dense(dtype).exchange(torch.ones(100), None, context(comm))
        assert comm.stages == list(pattern(Dense(dtype), None, Load(4, 100, 100)).stages)
        return comm.stages

    before = both_send()
    other = torch.float16 if dtype == "fp32" else torch.float32
    monkeypatch.setitem(dense.WIRE_DTYPES, dtype, other)
    assert both_send() != before


@pytest.fixture
def nothing_planned() -> Iterator[None]:
    """Plans are kept, and would outlive what they were made by."""
    _factoring.factoring.cache_clear()
    yield
    _factoring.factoring.cache_clear()


@pytest.mark.usefixtures("nothing_planned")
@pytest.mark.parametrize("least_saving", [1, 2, 50])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("shapes", [((30, 40), (30,), (20, 4, 5), (30, 40)), ((7,),), ()])
def test_the_model_factors_what_the_collective_does(
    shapes: tuple[tuple[int, ...], ...],
    dtype: str,
    least_saving: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_factoring, "LEAST_SAVING", least_saving)
    comm, n = Alike(4), sum(map(math.prod, shapes)) or 100
    ctx = dataclasses.replace(context(comm), shapes=shapes)
    LowRank(2, dtype).exchange(torch.ones(n), None, ctx)
    load = Load(4, n, n, shapes=shapes)
    assert comm.stages == list(pattern(LowRank(2, dtype), None, load).stages)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("collective", [FewBits(8), FewBits(4, 16), FewBits(8, rotate=True)])
def test_the_model_sends_the_bytes_of_few_bits(size: int, collective: FewBits) -> None:
    comm = Alike(size)
    collective.exchange(torch.ones(1000), None, context(comm))
    assert comm.stages == list(pattern(collective, None, Load(size, 1000, 1000)).stages)


@pytest.mark.parametrize("size", [1, *SIZES])
def test_gtopk_s_tree_takes_as_many_rounds_as_the_model_says(size: int) -> None:
    parents = [neighbours(rank, size)[0] for rank in range(size)]
    rounds = {rank - parent for rank, parent in enumerate(parents) if parent is not None}
    (tree,) = pattern(GTopK(), RAW, Load(size, 1000, 10)).stages
    assert tree.rounds == 2 * len(rounds)  # a round for each distance, up and down


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("in_flight", [1, 3, 4, 300])
def test_oktopk_has_as_many_messages_in_flight_as_the_model_says(size: int, in_flight: int) -> None:
    comm = Alike(size)
    equal = regions.Regions(tuple(range(size + 1)))
    nothing = Sparse(torch.arange(0), torch.zeros(0), size)
    split_and_reduce(nothing, equal, RAW, in_flight, context(comm))
    split = pattern(OkTopK(in_flight=in_flight), RAW, Load(size, 10**6, 1000)).stages[1]
    assert comm.started == split.rounds


@pytest.mark.parametrize("digit", [4, 8])
def test_oktopk_s_histograms_are_the_model_s(digit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threshold, "DIGIT", digit)
    monkeypatch.setattr(threshold, "BINS", 1 << digit)
    comm = Alike(8)
    bits = threshold.magnitude_bits(torch.arange(100.0))
    assert threshold.kth_largest(bits, 8 * 10, comm) == int(bits[90])
    *histograms, passing = threshold_stages(8)
    assert comm.stages == histograms
    assert passing == gather_numbers(8, len(threshold.count_passing(bits, 0)))


@pytest.mark.parametrize("consensus", ["histogram", "average"])
@pytest.mark.parametrize("probes", [32, 64])
def test_oktopk_s_boundaries_are_the_model_s(
    consensus: regions.Consensus, probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "PROBES", probes)
    comm = Alike(8)
    spread = Sparse(torch.arange(10_000) * 7, torch.ones(10_000), 70_000)
    regions.agree_on_regions(spread, comm, consensus)
    assert comm.stages == boundary_stages(8, consensus)


def test_a_change_in_what_goes_ahead_reaches_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The communicator's side is in tests/comm, with the same number changed."""
    assert to_all(4, 1000).rounds == 1
    monkeypatch.setattr(messages, "EAGER", 999)
    assert to_all(4, 1000).rounds == 2
