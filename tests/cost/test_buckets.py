"""Units as DDP makes them: from the last tensor to the first, cut by size."""

import pytest

from thinwire.cost.buckets import FORWARD, PlannedUnit, units_of

MB = 2**18  # float32 elements
SHAPES = {"first": (MB,), "bias": (10,), "middle": (20 * MB,), "last": (2, MB)}


def test_per_tensor_in_the_order_of_the_backward_pass() -> None:
    units = units_of(SHAPES, "tensor", bypass=1000)
    assert [unit.names for unit in units] == [("last",), ("middle",), ("first",), ("bias",)]
    assert [unit.numel for unit in units] == [2 * MB, 20 * MB, MB, 10]


def test_the_first_bucket_is_small_and_the_last_is_ready_at_the_end() -> None:
    units = units_of(SHAPES, "bucket", bypass=0)
    assert [unit.names for unit in units] == [("last",), ("middle", "bias", "first")]
    assert FORWARD < units[0].ready < units[1].ready == 1


def test_a_large_tensor_fills_a_bucket() -> None:
    shapes = {"first": (MB,), "large": (30 * MB,), "last": (MB,)}
    units = units_of(shapes, "bucket", bypass=0)
    assert [unit.names for unit in units] == [("last",), ("large",), ("first",)]


def test_small_tensors_travel_together_and_dense_at_the_end() -> None:
    shapes = {f"bias.{i}": (10,) for i in range(3)} | {"weight": (MB,)}
    assert units_of(shapes, "tensor", bypass=10)[-1] == PlannedUnit(
        ("bias.0", "bias.1", "bias.2"), 30, 1.0, bypassed=True, shapes=((10,),) * 3
    )


def test_one_unit_for_the_whole_model_waits_for_the_last_gradient() -> None:
    large, small = units_of(SHAPES, "model", bypass=1000)
    assert (set(large.names), large.ready) == ({"first", "middle", "last"}, 1)
    assert (small.names, small.bypassed) == (("bias",), True)


@pytest.mark.parametrize("unit", ["tensor", "bucket", "model"])
def test_every_tensor_is_in_one_unit(unit: str) -> None:
    names = [name for planned in units_of(SHAPES, unit, bypass=1000) for name in planned.names]
    assert sorted(names) == sorted(SHAPES)


def test_where_the_work_is_known_it_decides_when_a_bucket_is_ready() -> None:
    work = {"first": 0.0, "bias": 0.0, "middle": 3.0, "last": 1.0}
    units = units_of(SHAPES, "tensor", bypass=0, work=work)
    assert units[0].ready == pytest.approx(FORWARD + (1 - FORWARD) / 4)
