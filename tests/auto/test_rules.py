"""From times to a choice."""

import pytest

from thinwire.auto.candidates import method_of
from thinwire.auto.rules import cheapest, fastest, lost, next_trial, typical


def test_each_unit_gets_its_cheapest_choice():
    costs = {"dense": {"a": 1.0, "b": 1.0}, "x": {"a": 0.5, "b": 3.0}, "y": {"a": 0.6, "b": 0.9}}
    assert cheapest(costs) == {"a": "x", "b": "y"}


def test_a_gain_below_three_percent_is_none():
    assert cheapest({"dense": {"a": 1.0}, "x": {"a": 0.98}}) == {"a": "dense"}
    assert cheapest({"dense": {"a": 1.0}, "x": {"a": 0.96}}) == {"a": "x"}
    assert fastest({"dense": 1.0, "x": 0.98}) == "dense"
    assert fastest({"dense": 1.0, "x": 0.96, "y": 0.95}) == "y"


def test_with_nothing_to_choose_from_it_is_dense():
    assert cheapest({"dense": {"a": 1.0}}) == {"a": "dense"}
    assert fastest({"dense": 1.0}) == "dense"


def test_the_most_promising_is_tried_next():
    predicted = {"dense": 1.0, "x": 0.5, "y": 0.4, "z": 9.0}
    assert next_trial(predicted, {"dense": 1.0}, method_of) == "y"
    assert next_trial(predicted, {"dense": 1.0, "y": 0.6}, method_of) == "x"


def test_what_is_predicted_to_be_far_worse_is_never_tried():
    predicted = {"dense": 1.0, "x": 0.5, "z": 9.0}
    assert next_trial(predicted, {"dense": 1.0, "x": 0.5}, method_of) is None
    assert next_trial({"dense": 1.0, "x": 0.9}, {"dense": 0.6}, method_of) is None
    assert next_trial({"dense": 1.0}, {"dense": 1.0}, method_of) is None


def test_a_method_is_expected_to_be_as_far_off_as_its_other_variants():
    predicted = {"dense": 1.0, "x": 0.5, "x by model | rice": 0.4, "y": 0.5}
    tried = {"dense": 1.0, "x": 1.0}  # twice what was predicted: its variant may take 0.72, y 0.7
    assert next_trial(predicted, tried, method_of) == "y"
    assert next_trial(predicted, tried | {"y": 0.7}, method_of) is None


@pytest.mark.parametrize(
    ("label", "method"),
    [("topk", "topk"), ("topk by model", "topk"), ("ok-topk by bucket | rice+bf16", "ok-topk")],
)
def test_variants_share_their_method(label, method):
    assert method_of(label) == method


def test_what_is_typical_is_not_what_was_disturbed():
    assert typical([3.0]) == 3.0
    assert typical([9.0, 3.0]) == 3.0
    assert typical([1.0, 9.0, 2.0]) == 2.0


def test_trials_lose_what_they_take_longer():
    assert lost([3.0, 1.0, 2.5], 2.0) == pytest.approx(0.75)
    assert lost([1.0], 0.0) == 0.0
