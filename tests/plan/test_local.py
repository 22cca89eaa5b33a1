"""How large a round must be: by the formula, and by what is predicted for a slow link."""

import math
import re

import pytest

import thinwire as tw
from thinwire.cost.network import Link, Network
from thinwire.errors import RecipeError
from thinwire.frontends.local.setups import setup
from thinwire.plan.local import METHODS, LocalPlan, local_plans, local_verdict, pipelines
from thinwire.plan.models import Model
from thinwire.plan.steps import predictions

MODEL = Model("own", {"a": (1000, 1000), "b": (1000,)}, compute=0.1)


def network(gbps, latency=50e-3):
    return Network(Link.of(gbps, latency))


@pytest.mark.parametrize("exchange", [0.0, 0.004, 0.1, 3.7])
@pytest.mark.parametrize("work", [0.0, 0.5])
def test_rounds_are_as_short_as_they_may_be(exchange, work):
    plan = LocalPlan("own", compute=0.1, exchange=exchange, work=work, sent=0.0, utilisation=0.95)

    def share(every, waited):
        return 0.1 * every / (0.1 * every + waited)

    assert share(plan.every, exchange + work) >= 0.95
    assert plan.every == 1 or share(plan.every - 1, exchange + work) < 0.95
    hidden = plan.every_behind
    assert share(hidden, work) >= 0.95
    assert plan.delay < hidden and plan.delay * 0.1 >= exchange
    shorter = hidden - 1
    assert shorter == 0 or share(shorter, work) < 0.95 or shorter <= math.ceil(exchange / 0.1)


@pytest.mark.parametrize("exchange", [0.0, 0.04, 0.47, 2.17, 8.0])
def test_a_fragment_travels_for_its_own_part_of_the_exchange(exchange):
    """Alone on the link, and done before the next one is sent: none waits for another."""
    plan = LocalPlan("own", 0.1, exchange, 0.0, sent=0.0, utilisation=0.95, fragments=4)
    assert (plan.delay - 1) * 0.1 < exchange / 4 <= plan.delay * 0.1 + 1e-9
    apart = plan.every_behind // 4
    assert plan.delay <= apart and 4 * apart == plan.every_behind > plan.delay
    assert apart == 1 or 4 * (apart - 1) * 0.1 < exchange  # a shorter round is too short for all


@pytest.mark.parametrize("gbps", [0.05, 0.1, 0.13, 1])
def test_what_is_planned_is_what_outer_takes(gbps):
    """Streaming DiLoCo's fragments divide its rounds."""
    for plan in local_plans(MODEL, 4, network(gbps), None, 0.95):
        setup(plan.name, every=plan.every, delay=0)
        setup(plan.name, every=plan.every_behind, delay=plan.delay)


def test_fewer_bytes_make_shorter_rounds():
    plans = local_plans(MODEL, 4, network(0.1, latency=50e-6), None, 0.95)
    assert [plan.name for plan in plans] == list(METHODS)
    every = {plan.name: plan.every for plan in plans}
    assert every["sparseloco"] < every["streaming-diloco"] < every["diloco"]


def test_whether_they_pay_depends_on_the_link():
    recipes = {"dense": tw.recipe("dense"), "topk": tw.recipe("topk")}
    for gbps, latency, answer in ((0.1, 50e-3, "Local steps pay"), (100, 1e-6, "do not pay")):
        steps = predictions(recipes, MODEL, 4, network(gbps, latency), None)
        plans = local_plans(MODEL, 4, network(gbps, latency), None, 0.95)
        assert answer in local_verdict(steps, plans)


def test_the_sentence_is_what_outer_takes():
    """Streaming DiLoCo has a delay of its own: one that is to be waited for says delay=0."""
    steps = predictions({"dense": tw.recipe("dense")}, MODEL, 4, network(0.1), None)
    said = local_verdict(steps, local_plans(MODEL, 4, network(0.1), None, 0.5))
    waited = re.findall(
        r"([a-z-]+) every (\d+) with delay=(\d+), or every (\d+) with delay=(\d+)", said
    )
    assert {name for name, *_ in waited} == set(METHODS)
    for name, *numbers in waited:
        every, none, behind, delay = map(int, numbers)
        setup(name, every=every, delay=none)
        setup(name, every=behind, delay=delay)


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(RecipeError, match=r"utilisation=1\.5"):
        local_plans(MODEL, 4, network(1), None, 1.5)
    assert set(pipelines()) == set(METHODS)
