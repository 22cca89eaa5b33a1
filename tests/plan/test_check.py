"""Predictions beside measurements: of a network that dense steps show, or that was calibrated."""

import pytest

from thinwire.cookbook import recipe
from thinwire.cost.calibration import Calibration
from thinwire.cost.curves import Costs
from thinwire.cost.estimate import Speed
from thinwire.cost.exchange import Load
from thinwire.cost.network import Link, Network
from thinwire.cost.patterns import exchange_cost
from thinwire.errors import ThinwireError
from thinwire.plan.check import CORE, Place, _step, compare, median_error, nearest

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


def test_compute_that_was_measured_more_than_once_is_the_least():
    network = calibrated(10).network
    rows = [
        row("compute alone", 0.05),
        row("topk", taking("topk", network)),
        row("compute alone", 0.1),
    ]
    (compared,) = compare(rows, [calibrated(10)])
    assert compared["compute_seconds"] == 0.05 and compared["error"] == pytest.approx(0)


def test_runs_in_files_that_are_read_together_keep_their_own_compute_and_network():
    def run(file, compute, gbps):
        network = calibrated(gbps).network
        named = [("torch-dense", "dense"), ("bf16", "bf16")]
        steps = [row(name, taking(recipe, network, compute)) for name, recipe in named]
        return [{"file": file} | one for one in (row("compute alone", compute), *steps)]

    rows = [*run("a.json", 0.05, 0.01), *run("b.json", 0.01, 1)]
    assert [c["compute_seconds"] for c in compare(rows, [])] == [0.05, 0.01]
    assert median_error(compare(rows, [])) < 0.02


def test_without_a_calibration_a_core_is_no_gpu():
    """Elements that a core selects from take it longer than a card."""
    assert Place(4, 1000.0, "cpu").speed == CORE
    card = Place(4, 1000.0, "cuda").speed
    assert card.read < CORE.read / 10 and card.product < CORE.product / 10
    rows = [row("compute alone", 0.01, 100.0), row("torch-dense", 0.5, 100.0)]
    rows = [one | {"device": "cpu"} for one in [*rows, row("topk", 0.02, 100.0, 0.01)]]
    (compared,) = compare(rows, [])
    assert compared["predicted_seconds"] > 0.01 + 50_000 * 5 * CORE.read


def test_messages_to_one_port_take_longer_where_that_was_measured():
    """docs/results/all-to-all.log: half as long again at 1 Gbit/s, and no longer at 10 and 25."""
    assert [Place(4, rate, "cuda").crowded for rate in (1e3, 1e4, 2.5e4, None)] == [1.5, 1, 1, 1]


def test_the_head_of_gpt2_is_the_work_of_its_first_gradients():
    """Its matrix is the embedding's, whose gradient comes last: dense exchanges begin late."""
    network, dense = calibrated(1).network, recipe("dense")
    exchange, *_ = exchange_cost(dense.collective, None, Load(4, 124_439_808, 124_439_808), network)
    seconds = _step(dense, "gpt2", 4, network, SPEED, 1.0)
    assert 1 / 3 + 2 / 3 * 0.31 < seconds - exchange < 2 / 3
