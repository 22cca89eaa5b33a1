"""How local steps are written on the command line of a bench.

Covers bench/train/rounds.py.
"""

import pytest
import torch

from thinwire.bench.train.rounds import rounds_of
from thinwire.errors import ThinwireError


def test_a_recipe_without_rounds_exchanges_at_every_step() -> None:
    assert rounds_of("topk(0.01)") is None


@pytest.mark.parametrize(
    "recipe", ["sparseloco", "shortloco", "chunk-topk(0.03125, feedback='residual(0.95)')"]
)
def test_rounds_alone_keep_the_outer_steps_of_the_setup(recipe: str) -> None:
    rounds = rounds_of(f"{recipe}@15")
    assert rounds is not None
    assert (rounds.recipe, rounds.every, rounds.outer) == (recipe, 15, None)


@pytest.mark.parametrize(("momentum", "nesterov"), [("0.6", True), ("0", False)])
def test_outer_rate_and_momentum_make_an_optimiser(momentum: str, nesterov: bool) -> None:
    rounds = rounds_of(f"sparseloco@10/0.7/{momentum}")
    assert rounds is not None and rounds.outer is not None
    assert (rounds.recipe, rounds.every) == ("sparseloco", 10)
    made = rounds.outer([torch.zeros(3)])
    assert isinstance(made, torch.optim.SGD)
    chosen = {key: made.defaults[key] for key in ("lr", "momentum", "nesterov")}
    assert chosen == {"lr": 0.7, "momentum": float(momentum), "nesterov": nesterov}


@pytest.mark.parametrize(("after", "outer"), [("", False), ("/0.7/0.6", True)])
def test_a_delay_comes_after_a_plus(after: str, outer: bool) -> None:
    rounds = rounds_of(f"shortloco@5+4{after}")
    assert rounds is not None
    assert (rounds.recipe, rounds.every, rounds.delay) == ("shortloco", 5, 4)
    assert (rounds.outer is not None) == outer
    at_once = rounds_of("streaming-diloco@8")
    assert at_once is not None and at_once.delay is None  # the set-up's own
    with pytest.raises(ThinwireError, match="delay=5 must be less than every=5"):
        rounds_of("shortloco@5+5")


def test_other_settings_come_in_brackets() -> None:
    rounds = rounds_of("int4@6+1/1/0.3(fragments=3, moments=mean, hold=0.5)")
    assert rounds is not None and rounds.outer is not None
    assert (rounds.recipe, rounds.every, rounds.delay) == ("int4", 6, 1)
    assert rounds.others == {"fragments": 3, "moments": "mean", "hold": 0.5}


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("lr=1", "'lr=1' is no setting of local steps: fragments, blend, hold, own, moments"),
        ("fragments=few", "'fragments=few'"),
        ("fragments=4", "do not divide"),
        ("moments=most", "moments='most'"),
    ],
)
def test_settings_that_cannot_be_are_refused(written: str, says: str) -> None:
    with pytest.raises(ThinwireError, match=says):
        rounds_of(f"int4@6({written})")


@pytest.mark.parametrize(
    "after",
    ["", "10+", "+4", "10/0.7/0.6+4", "soon", "10/0.7", "10/0.7/", "10/-1/0", "10/0.7/0.6/5"],
)
def test_what_cannot_be_read_is_refused_with_its_name(after: str) -> None:
    with pytest.raises(ThinwireError, match="after @ comes the number of local steps"):
        rounds_of(f"diloco@{after}")
