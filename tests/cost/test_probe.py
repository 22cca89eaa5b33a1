"""Calibration: the same plain numbers on all ranks, kept on disk, measured anew when asked.

Covers cost/cache.py, cost/calibration.py, cost/curves.py.
"""

import json
import warnings

import pytest
import torch

from support.cost_ranks import calibrated, calibrated_in_nodes
from thinwire.cookbook import recipe
from thinwire.cost import cache
from thinwire.cost.calibration import Calibration, calibrate
from thinwire.cost.curves import SIZES, WORK, Costs, Curve, key_of, measure_curves
from thinwire.cost.network import Link, Network
from thinwire.cost.wire_size import alone

CPU = torch.device("cpu")
TRUE = Curve(2e-9, 3e-8, 4e-5)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def points(curve):
    return [(n, d * n, curve.seconds(n, d * n)) for n in SIZES for d in (0.01, 0.04)]


@pytest.mark.parametrize("curve", [TRUE, Curve(0, 3e-8, 4e-5), Curve(2e-9, 0, 0), Curve()])
def test_a_curve_is_found_again(curve):
    found = Curve.fit(points(curve))
    for n, k, seconds in points(curve):
        assert found.seconds(n, k) == pytest.approx(seconds, rel=1e-6, abs=2e-9)


def test_no_cost_is_negative():
    falling = [(n, k, 1.0 / n) for n, k, _ in points(TRUE)]
    found = Curve.fit(falling)
    assert min(found.a, found.b, found.c) >= 0


@pytest.mark.parametrize("name", ["dense", "topk", "ok-topk", "qsgd", "union", "powersgd"])
def test_a_recipe_is_measured_by_kinds_of_work(name):
    ticks = iter(range(10**9))
    curves = measure_curves(recipe(name), CPU, sizes=(1000, 4000), clock=lambda: next(ticks) * 1e-6)
    assert set(curves) == set(WORK)
    assert curves["encode"].seconds(4000, 40) > 0


def test_all_ranks_hold_the_same_numbers_and_find_them_again(cluster, tmp_path):
    """A cache that one rank lacks is nobody's, or ranks would wait for each other."""
    first, again, partly, anew = zip(*cluster.run(calibrated, 3, str(tmp_path)), strict=True)
    for results in (first, again, partly, anew):
        assert results[0] == results[1] == results[2]
    assert again[0]["costs"] == first[0]["costs"]
    assert again[0]["network"] != first[0]["network"], "the link may be another one by now"
    assert partly[0]["costs"] != first[0]["costs"]
    assert anew[0]["costs"] != partly[0]["costs"]
    network = Calibration.from_dict(first[0]).network
    assert network.link.alpha > 0 and network.link.beta > 0
    assert network.ring is not None and network.ring.beta > 0


def test_two_levels_are_measured_and_known_to_all(cluster, tmp_path):
    results = cluster.run(calibrated_in_nodes, 4, str(tmp_path))
    assert all(result == results[0] for result in results)
    network = Network.from_dict(results[0])
    assert network.node_size == 2 and network.inside is not None and network.link.alpha > 0


def test_a_broken_file_is_ignored_with_a_warning():
    identity = cache.identity_of(CPU, 1, "none") | {"node_size": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = calibrate(alone(), [recipe("dense")], CPU)
        assert calibrate(alone(), [recipe("dense")], CPU) == first
    path = cache.place(identity)
    for damage in ("{", "[]", "{}", json.dumps({"identity": identity, "measured": 3})):
        path.write_text(damage)
        with pytest.warns(UserWarning, match="measured anew"):
            calibrate(alone(), [], CPU)
        assert cache.read(identity) is not None
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_recipes_are_measured_as_they_are_asked_for():
    topk, dense = recipe("topk"), recipe("dense")
    first = calibrate(alone(), [topk], CPU).costs
    both = calibrate(alone(), [topk, dense], CPU).costs
    assert both.of(topk) == first.of(topk)
    assert first.of(dense) is None and both.of(dense) is not None
    assert (
        key_of(recipe("topk", unit="model")) == key_of(topk) != key_of(recipe("topk", density=0.1))
    )


def test_calibrations_are_plain_numbers():
    network = Network(Link(1e-4, 1e-9, 1e-5), Link(1e-5, 2e-9))
    calibration = Calibration(network, Costs("cpu", {"topk": {"local": TRUE}}))
    assert Calibration.from_dict(json.loads(json.dumps(calibration.to_dict()))) == calibration


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="not kept"):
        calibrate(alone(), [], CPU)
