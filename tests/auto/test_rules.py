"""From costs to a choice."""

import pytest

from thinwire.auto.rules import Measured, cheapest, finalists, is_worth, middle


def test_each_unit_gets_its_cheapest_choice():
    costs = {"dense": {"a": 1.0, "b": 1.0}, "x": {"a": 0.5, "b": 3.0}, "y": {"a": 0.6, "b": 0.9}}
    assert cheapest(costs) == {"a": "x", "b": "y"}


def test_a_gain_below_three_percent_is_none():
    assert cheapest({"dense": {"a": 1.0}, "x": {"a": 0.98}}) == {"a": "dense"}
    assert cheapest({"dense": {"a": 1.0}, "x": {"a": 0.96}}) == {"a": "x"}


def test_with_nothing_to_choose_from_it_is_dense():
    assert cheapest({"dense": {"a": 1.0}}) == {"a": "dense"}


def test_finalists_are_those_that_may_save_the_most():
    dense = {"a": 1.0, "b": 0.1}
    predicted = {
        "slow": {"a": 9.0, "b": 9.0},
        "good": {"a": 0.2, "b": 0.2},
        "fair": {"a": 0.5, "b": 0.2},
        "only b": {"a": 9.0, "b": 0.01},
        "last": {"a": 1.25, "b": 9.0},
    }
    assert finalists(predicted, dense) == ["good", "fair", "last", "only b"]
    assert finalists({"slow": predicted["slow"]}, dense) == []


@pytest.mark.parametrize(
    ("step", "busy", "worth"),
    [
        (0.5, 0.1, True),
        (1.0, 0.1, False),  # hidden behind the compute
        (0.5, 0.59, False),  # the compute itself was quicker
        (0.98, 0.1, False),
    ],
)
def test_whole_steps_and_units_must_both_be_faster(step, busy, worth):
    assert is_worth(Measured(step, {"a": busy}), Measured(1.0, {"a": 0.6})) is worth


def test_the_middle_is_taken_of_each_number_for_itself():
    seen = [Measured(1.0, {"a": 3.0}), Measured(9.0, {"a": 1.0}), Measured(2.0, {"a": 2.0})]
    assert middle(seen) == Measured(2.0, {"a": 2.0})
