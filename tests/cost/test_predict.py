"""Predicted steps: the simulation of overlap against cases worked out by hand."""

import sys
from dataclasses import replace
from math import prod

import pytest

from support.cost_ranks import step_written
from thinwire.collective import Dense
from thinwire.cookbook import recipe, recipes
from thinwire.cost.buckets import FORWARD, PlannedUnit, units_of
from thinwire.cost.curves import Costs, Curve, key_of
from thinwire.cost.exchange import Load
from thinwire.cost.network import Link, Network
from thinwire.cost.patterns import exchange_cost, pattern
from thinwire.cost.predict import (
    ALIKE,
    UnitCost,
    expected_seconds,
    load_of,
    predict,
    step_seconds,
)
from thinwire.workloads.shapes import multiply_adds, shapes

SHAPES = {"first": (1000, 1000), "bias": (1000,), "last": (500, 1000)}
NETWORK = Network(Link(1e-4, 1e-8))


def turn(ready, exchange, before=0.0, after=0.0):
    unit = PlannedUnit(("w",), 10, ready)
    return UnitCost(unit, 1, before + after, exchange, 0.0, after)


def test_one_ordered_worker_takes_units_as_they_are_ready():
    turns = [turn(0.5, 1.5, 0.5), turn(0.75, 0.5, 0.5), turn(1.0, 0.5)]
    assert step_seconds(turns, 4.0) == 5.5  # 2…4, 4…5, 5…5.5
    assert step_seconds(turns, 100.0) == 100.5
    assert step_seconds(turns, 0.0) == 3.5
    assert step_seconds(turns, 4.0, overlap=False) == 7.5
    assert step_seconds([], 4.0) == 4.0


def test_over_nccl_the_wire_is_busy_while_devices_work():
    turns = [turn(0.5, 2.0, 0.25, 0.5), turn(0.75, 2.0, 0.25, 0.5)]
    # Selected by 2.25 and 3.5, the second also after the first; on the wire 2.25…4.25…6.25.
    assert step_seconds(turns, 4.0, several=True) == 6.75
    # Neither selecting nor decoding is hidden by compute: both take the device.
    assert step_seconds(turns, 100.0, several=True) == 101.5
    assert step_seconds(turns, 4.0, several=True, overlap=False) == 9.5


def test_time_alone_is_that_of_the_whole_prediction():
    for name in ("dense", "topk", "union"):
        built = recipe(name)
        units = units_of(SHAPES, built.unit, built.bypass, joins=built.joins)
        alone = expected_seconds(built, units, 8, NETWORK, None, compute=1.0)
        assert alone == predict(built, SHAPES, 8, NETWORK, compute=1.0).seconds


def test_units_are_ready_from_the_last_layer_to_the_first():
    units = units_of(SHAPES, "tensor", bypass=1000)
    assert [unit.names for unit in units] == [("last",), ("first",), ("bias",)]
    done = 500_000 / 1_501_000
    assert units[0].ready == pytest.approx(FORWARD + (1 - FORWARD) * done)
    assert [unit.ready for unit in units[1:]] == [1.0, 1.0]
    assert units[2].bypassed and not units[1].bypassed


@pytest.mark.parametrize("unit", ["tensor", "bucket", "model"])
def test_every_element_travels_once(unit):
    model = shapes("resnet50")
    units = units_of(model, unit, bypass=1000, work=multiply_adds("resnet50"))
    assert sorted(n for u in units for n in u.names) == sorted(model)
    assert sum(u.numel for u in units) == sum(map(prod, model.values()))
    order = [u.ready for u in units]
    assert order == sorted(order) and order[-1] == pytest.approx(1.0)


def test_a_step_without_overlap_is_the_sum_of_its_parts():
    dense = recipe("dense")
    n = sum(map(prod, SHAPES.values()))
    made = predict(dense, SHAPES, 8, NETWORK, compute=1.0, overlap=False)
    each = [
        exchange_cost(dense.collective, None, Load(8, u.numel, u.numel), NETWORK)[0]
        for u in units_of(SHAPES, "bucket", 0)
    ]
    agreed = 7 * 1e-4 + 7 * 16 * 1e-8  # two numbers round the ring: no rank found NaN
    assert made.seconds == pytest.approx(1.0 + sum(each) + agreed)
    framed = 144 * (len(each) * 2 * 14 + 7)  # two segments for each of 14 rounds, and the answers
    assert made.sent == pytest.approx(2 * 7 / 8 * 4 * n + 7 * 16 + framed)
    assert predict(dense, SHAPES, 8, NETWORK, compute=1.0).seconds < made.seconds


MANY = {f"{i}.{kind}": shape for i in range(8) for kind, shape in (("w", (40, 50)), ("b", (40,)))}


EXACT = ("dense", "topk", "gtopk", "qsgd(4)", "topk-dsa", "clt-k", "micro", "spardl", "zen",
         "signsgd", "terngrad", "sketchml", "skcompress", "deepreduce")  # fmt: skip
TOLERANCES = dict.fromkeys(EXACT, 0.03) | {"union": 0.1, "omnireduce": 0.1}  # of a few blocks


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's struct tcp_info")
@pytest.mark.parametrize("name", TOLERANCES)
@pytest.mark.parametrize("workers", [2, 4])
def test_a_step_writes_as_many_bytes_as_predicted(cluster, name, workers):
    """Over Gloo, by the kernel's counters: its frames, and small tensors that travel whole, are
    much of what a model of small tensors takes."""
    written = cluster.run(step_written, workers, name, MANY)
    made = predict(recipe(name), MANY, workers, NETWORK, alike=0.0)
    assert made.sent == pytest.approx(sum(written) / workers, rel=TOLERANCES[name])


def test_what_gloo_writes_around_messages_is_not_nccl_s():
    """Nor is it time: a message's α has been measured with it."""
    over_nccl = Network(NETWORK.link, backend="nccl")
    bare = pattern(Dense(), None, Load(4, 1000, 1000))
    ours, theirs = (
        exchange_cost(Dense(), None, Load(4, 1000, 1000), n) for n in (NETWORK, over_nccl)
    )
    assert (ours[1], theirs[1]) == (bare.framed, bare.sent) and bare.framed > bare.sent
    assert ours[0] == theirs[0]


@pytest.mark.parametrize("name", recipes())
@pytest.mark.parametrize("workers", [1, 2, 64])
def test_every_recipe_has_a_prediction_within_its_interval(name, workers):
    made = predict(recipe(name), SHAPES, workers, NETWORK, compute=0.01)
    assert 0.01 <= made.low <= made.seconds <= made.high
    assert (made.sent == 0) == (workers == 1)


def test_low_rank_is_predicted_from_the_shapes():
    """Two rings of factors: (1000 + 1000 + 500 + 1000)·r numbers, and the vector."""
    network = replace(NETWORK, backend="nccl")  # without Gloo's frames
    made = predict(recipe("powersgd", rank=2, unit="model"), SHAPES, 2, network)
    assert sum(unit.sent for unit in made.units) == 4 * (2 * 3500 + 1000)
    half = predict(recipe("powersgd", rank=2, dtype="bf16", unit="model"), SHAPES, 2, network)
    assert sum(unit.sent for unit in half.units) == 2 * (2 * 3500 + 1000)


def test_the_devices_work_grows_with_what_is_decoded():
    topk = recipe("topk", unit="model", bypass=0)
    curves = {"local": Curve(a=1e-9), "encode": Curve(b=1e-8), "decode": Curve(b=1e-7)}
    costs = Costs("cpu", {key_of(topk): curves}, spread=0.0)
    (unit,) = predict(topk, {"w": (1_000_000,)}, 8, NETWORK, costs).units
    assert unit.k == 10_000
    assert unit.work == pytest.approx(1e-3 + 10_000 * 1e-8 + 8 * 10_000 * 1e-7)


def test_two_levels_help_where_nodes_are_well_connected():
    topk = recipe("topk")
    flat = predict(topk, shapes("resnet50"), 64, Network(Link.of(1, 1e-4)))
    nodes = Network(Link.of(1, 1e-4), inside=Link.of(400, 5e-6), node_size=8)
    assert predict(topk, shapes("resnet50"), 64, nodes).seconds < flat.seconds / 4


def test_loads_follow_the_selection():
    assert load_of(recipe("dense"), 1000, 4).dense
    assert load_of(recipe("union", density=0.01), 64_000, 4) == Load(4, 64_000, 640, ALIKE, 64)
    assert load_of(recipe("randomk"), 10_000, 4).k == 100
    assert load_of(recipe("dragonn", density=0.01), 100_000, 4).k == pytest.approx(632, abs=1)
