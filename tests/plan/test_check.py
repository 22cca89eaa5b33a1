"""Predictions beside measurements: of a network that dense steps show, or that was calibrated."""

import pytest

from thinwire.cookbook import recipe
from thinwire.cost.calibration import Calibration
from thinwire.cost.curves import Costs
from thinwire.cost.estimate import Speed
from thinwire.cost.network import Link, Network
from thinwire.errors import ThinwireError
from thinwire.plan.check import _step, compare, median_error, nearest

SPEED = Speed(1e-12, 1e-11, 5e-6)


def calibrated(gbps):
    link = Link.of(gbps * 0.95, 4e-5)
    return Calibration(Network(link, link, backend="nccl"), Costs("cuda"), SPEED)


def row(name, seconds, rate=10_000.0, density=None):
    return {
        "recipe": name, "model": "gpt2-tiny", "workers": 4, "rate": rate, "density": density,
        "device": "cuda", "step_seconds": seconds,
    }  # fmt: skip


def taking(name, network, compute=0.05):
    return _step(recipe(name), "gpt2-tiny", 4, network, SPEED, compute)


def test_what_the_model_predicts_is_off_by_nothing():
    network = calibrated(10).network
    seconds = taking("topk", network)
    rows = [row("compute alone", 0.05), row("topk", seconds), row("torch-powersgd-1", 0.07)]
    (compared,) = compare(rows, [calibrated(10)])
    assert compared["error"] == pytest.approx(0)
    assert compared["compute_seconds"] == 0.05
    rows[1] = row("topk", 2 * seconds)
    assert median_error(compare(rows, [calibrated(10)])) == pytest.approx(0.5)


def test_a_dense_step_shows_the_network():
    """At a tenth of the rate, a step without compute takes nearly ten times as long."""
    slow = calibrated(0.01).network
    rows = [row("compute alone", 0.0), row("torch-dense", taking("dense", slow, 0.0))]
    rows += [row("bf16", taking("bf16", slow, 0.0)), row("topk", None)]
    (compared,) = compare(rows, [])  # dense itself was given, and topk was not measured
    assert compared["recipe"] == "bf16"
    assert compared["error"] == pytest.approx(0, abs=0.02)


def test_the_nearest_calibration_is_taken_and_sockets_have_a_limit():
    slow, fast = calibrated(1), calibrated(20)
    assert nearest([fast, slow], 1000.0) is slow.network
    assert nearest([fast, slow], None) is fast.network
    assert nearest([fast, slow], 100_000.0) is fast.network  # no faster than sockets carry it
    between = nearest([fast, slow], 10_000.0)
    assert between.link.beta == pytest.approx(8 / (0.95 * 10e9))
    assert between.link.alpha == fast.network.link.alpha


def test_other_rows_are_refused():
    with pytest.raises(ThinwireError, match="no measured steps"):
        compare([{"recipe": "topk", "seconds": 1.0}], [])
