"""What predictions are taken to mean: yes, no, or at a price; and below which link.

Covers plan/steps.py.
"""

import thinwire as tw
from thinwire.cost.network import Link, Network
from thinwire.cost.predict import Prediction
from thinwire.plan.models import find_model
from thinwire.plan.steps import predictions
from thinwire.plan.verdict import WORTH, diagnose, link_below, tiers

RECIPES = {name: tw.recipe(name) for name in ("dense", "int8", "topk")}
COMPUTE = 0.1


def step(seconds: float, spread: float = 0.1) -> Prediction:
    return Prediction(seconds, seconds - spread, seconds + spread, 0.0, ())


def of(**seconds: float) -> dict[str, Prediction]:
    return {name: step(s) for name, s in sorted(seconds.items(), key=lambda item: item[1])}


def test_yes_is_said_of_what_keeps_the_loss_and_the_price_of_more_is_named() -> None:
    verdict = diagnose(of(topk=0.2, int8=0.5, dense=1.0), RECIPES, COMPUTE)
    assert verdict.answer == "yes" and verdict.text.startswith("Yes: int8 takes 500 ms")
    assert "within one deviation" in verdict.text
    assert "topk takes 200 ms, and ends behind" in verdict.text
    assert verdict.best == {"exact": "dense", "near": "int8", "fast": "topk"}


def test_each_tier_has_an_interval_and_dense_none() -> None:
    steps = of(topk=0.2, int8=0.5, dense=1.0)
    exact, near, fast = tiers(steps, RECIPES, diagnose(steps, RECIPES, COMPUTE))
    assert (exact["recipe"], exact["gain_low"], exact["gain_high"]) == ("dense", 1, 1)
    assert near["gain"] == 2 and fast["recipe"] == "topk"
    assert (near["gain_low"], near["gain_high"]) == (0.9 / 0.6, 1.1 / 0.4)
    steps = of(int8=0.5, topk=0.6, dense=1.0)  # the best of all keeps the loss
    fast = tiers(steps, RECIPES, diagnose(steps, RECIPES, COMPUTE))[-1]
    assert (fast["quality"], fast["recipe"], fast["quality_of_recipe"]) == ("fast", "int8", "near")


def test_what_is_no_faster_than_what_keeps_the_loss_is_not_named() -> None:
    assert "topk" not in diagnose(of(topk=0.49, int8=0.5, dense=1.0), RECIPES, COMPUTE).text


def test_a_selection_alone_is_no_yes() -> None:
    verdict = diagnose(of(topk=0.2, int8=0.99, dense=1.0), RECIPES, COMPUTE, below=0.5)
    assert verdict.answer == "at a price"
    assert verdict.text.startswith("Only at a price: topk takes 200 ms")
    assert "more of them to the same loss" in verdict.text
    assert "Below 0.5 Gbit/s it would pay" in verdict.text


def test_no_has_a_reason() -> None:
    hidden = diagnose(of(dense=1.0, int8=1.1, topk=1.2), RECIPES, compute=1.0)
    assert hidden.answer == "no" and "hides behind" in hidden.text
    slow = diagnose(of(dense=1.0, int8=0.97, topk=1.2), RECIPES, COMPUTE)
    assert slow.answer == "no" and "the best other recipe takes 970 ms" in slow.text


def test_it_says_when_it_is_not_sure() -> None:
    sure = diagnose(of(int8=0.5, dense=1.0), RECIPES, COMPUTE)
    unsure = diagnose({"int8": step(0.8, 0.2), "dense": step(1.0)}, RECIPES, COMPUTE)
    assert "overlap" not in sure.text and "overlap" in unsure.text


def test_over_the_link_that_it_names_it_pays_and_over_a_faster_one_not() -> None:
    model, network = find_model("resnet18").taking(0.05), Network(Link.of(100, 0.0))

    def steps(over: Network) -> dict[str, Prediction]:
        return predictions(RECIPES, model, 4, over, None)

    gbps = link_below(network, steps, RECIPES)
    assert gbps is not None
    for factor, pays in ((0.99, True), (1.01, False)):
        found = steps(Network(Link.of(gbps * factor, 0.0)))
        assert (found["int8"].seconds <= WORTH * found["dense"].seconds) is pays


def test_where_nothing_keeps_the_loss_no_link_is_named() -> None:
    model, recipes = find_model("resnet18"), {n: RECIPES[n] for n in ("dense", "topk")}
    network = Network(Link.of(1, 0.0))
    assert (
        link_below(network, lambda over: predictions(recipes, model, 4, over, None), recipes)
        is None
    )
