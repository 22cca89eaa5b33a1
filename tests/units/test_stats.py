"""Costs of a unit: counted per step, and shared out to its tensors."""

import pytest
import torch

from thinwire.comm import Traffic
from thinwire.types import Sparse
from thinwire.units.stats import FIRST, Cost, Meter, total_cost

CPU = torch.device("cpu")


def chosen(*indices: int) -> Sparse:
    return Sparse(torch.tensor(indices), torch.ones(len(indices)), 40)


def test_bytes_go_by_what_was_selected_and_seconds_by_size() -> None:
    meter = Meter([10, 30], torch.float32, CPU)
    meter.count(chosen(0, 12, 13, 14), Traffic(sent=80, received=40), ranks=2)
    meter.book({"select": 4.0}, apart=False)
    small, large = meter.costs()
    assert (small.selected, large.selected) == (1, 3)
    assert (small.bytes_sent, large.bytes_sent) == (20, 60)
    assert (small.bytes_received, large.bytes_received) == (10, 30)
    assert (small.seconds, large.seconds) == ({"select": 1.0}, {"select": 3.0})
    assert (small.dense_bytes, large.dense_bytes) == (40, 120)  # 2·(P-1)/P·4 bytes


def test_order_of_the_selection_does_not_matter() -> None:
    meter = Meter([10, 30], torch.float32, CPU)
    unordered = Sparse(torch.tensor([13, 0, 12]), torch.ones(3), 40, ordered=False)
    meter.count(unordered, Traffic(), ranks=2)
    assert [cost.selected for cost in meter.costs()] == [1, 2]


def test_a_dense_selection_is_all_of_each_tensor() -> None:
    meter = Meter([10, 30], torch.float32, CPU)
    meter.count(torch.ones(40), Traffic(sent=8), ranks=1)
    assert [cost.selected for cost in meter.costs()] == [10, 30]
    assert meter.total.dense_bytes == 0  # one rank sends nothing


def test_nothing_selected_shares_bytes_equally() -> None:
    meter = Meter([10, 30], torch.float32, CPU)
    meter.count(None, Traffic(sent=8), ranks=2)
    assert [cost.bytes_sent for cost in meter.costs()] == [4, 4]


def test_a_phase_is_timed_and_adds_up() -> None:
    meter = Meter([10], torch.float32, CPU)
    for _ in range(FIRST + 2):
        meter.clock.begin("a step")
        with meter.phase("encode"):
            pass
        meter.count(torch.ones(10), Traffic(), ranks=2)
        meter.clock.end()
    (cost,) = meter.costs()
    assert cost.seconds.keys() == {"encode"}
    assert cost.seconds["encode"] > 0
    assert (cost.steps, cost.first_steps) == (FIRST + 2, FIRST)
    assert cost.first_seconds["encode"] > 0


def test_first_steps_begin_again_with_another_pipeline() -> None:
    meter = Meter([10], torch.float32, CPU)
    for step in range(FIRST):
        assert meter.fresh, step
        meter.count(None, Traffic(), ranks=2)
    assert not meter.fresh
    meter.restart()
    assert meter.fresh


def test_rows_are_counted_by_their_elements() -> None:
    meter = Meter([10, 30], torch.float32, CPU)
    rows = Sparse(torch.tensor([0, 2, 3, 9]), torch.ones(4, 4), 40)
    meter.count(rows, Traffic(), ranks=2)
    assert [cost.selected for cost in meter.costs()] == [8, 8]  # row 2 begins in the first tensor


def test_steps_that_are_timed_stand_for_those_that_are_not() -> None:
    meter = Meter([10], torch.float32, CPU)
    for _ in range(10):
        meter.count(None, Traffic(), ranks=2)
    meter.book({"select": 0.5}, apart=False)
    assert meter.costs()[0].seconds == {"select": 5.0}


def test_a_row_has_means_per_step() -> None:
    row = Cost(steps=4, numel=100, selected=40, bytes_sent=99.6).row()
    assert (row["k"], row["density"], row["bytes_sent"]) == (10, 0.1, 100)


def test_a_row_of_a_tensor_that_was_never_stepped() -> None:
    assert Cost().row()["k"] == Cost().row()["density"] == 0


def test_the_total_is_a_sum_whose_steps_are_the_largest() -> None:
    costs = [Cost(3, 10, 5, seconds={"select": 1.0}), Cost(7, 20, 2, seconds={"encode": 2.0})]
    total = total_cost(costs)
    assert (total.steps, total.numel, total.selected) == (7, 30, 7)
    assert total.seconds == {"select": 1.0, "encode": 2.0}


def test_a_tensor_that_changed_its_unit_keeps_its_size() -> None:
    cost = Cost(steps=2, numel=10, bytes_sent=5) + Cost(steps=3, numel=10, bytes_sent=7)
    assert (cost.steps, cost.numel, cost.bytes_sent) == (5, 10, pytest.approx(12))
