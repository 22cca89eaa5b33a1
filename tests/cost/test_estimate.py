"""Estimated costs: milliseconds to get, and in the order that measured ones have."""

from math import prod

import pytest
import torch

from thinwire.cookbook import recipe
from thinwire.cost.curves import WORK
from thinwire.cost.estimate import Speed, estimated_costs, measure_speed
from thinwire.cost.wire_size import alone

CPU = torch.device("cpu")
SPEED = Speed(read=1e-9, entry=4e-9, call=1e-4)


@pytest.mark.parametrize(
    "name", ["dense", "bf16", "int8", "topk", "ok-topk", "union", "dgc", "powersgd"]
)
def test_every_kind_of_work_has_a_curve(name):
    built = recipe(name)
    curves = estimated_costs([built], CPU, SPEED).of(built)
    assert set(curves) == set(WORK)
    assert all(curve.seconds(1e6, 1e4) >= 0 for curve in curves.values())


def test_selecting_takes_longer_than_sending_all_and_coding_longer_than_not():
    def work(text):
        built = recipe(text)
        curves = estimated_costs([built], CPU, SPEED).of(built)
        return sum(curve.seconds(1e6, 1e4) for curve in curves.values())

    coded = "topk(0.01) | rice+bf16 | allgather | residual"
    assert work("dense") < work("bf16") < work("topk") < work(coded)
    assert work("bf16") < work("int8")


def test_speed_is_the_best_of_several_reads():
    now = iter([0, 9, 10, 12, 20, 25, 30, 36, 40, 43, 50, 58])
    speed = measure_speed(alone(), CPU, clock=lambda: next(now) * 1e-3)
    assert speed.read * (1 << 21) == pytest.approx(2e-3)
    assert speed.product * (1 << 24) == pytest.approx(3e-3)


def test_factors_of_more_columns_take_longer_to_multiply():
    shapes = ((512, 2048), (512, 2048), (2048,))
    speed = Speed(read=0.0, entry=0.0, call=0.0, product=1e-12)

    def seconds(rank):
        built = recipe("powersgd", rank=rank)
        curves = estimated_costs([built], CPU, speed, shapes).of(built)
        elements = sum(map(prod, shapes))
        return sum(curve.seconds(elements, elements) for curve in curves.values())

    assert seconds(8) == pytest.approx(4 * 8 * 2 * 512 * 2048 * 1e-12)
    assert seconds(64) == pytest.approx(8 * seconds(8))
    assert seconds(0.125) == pytest.approx(seconds(64))  # an eighth of the width of 512
    assert seconds(400) == 0  # factors that save nothing: all travels as it is
