"""Law 9, whole steps: after a step that broke off all state is as before it, bit for bit."""

from datetime import timedelta

import pytest

from support import soak
from support.cluster import Cluster
from support.contracts import broken
from support.contracts.cases import Case, Layer, everything

EACH_COLLECTIVE = (
    *("dense", "int8", "topk", "gtopk", "ok-topk", "topk-dsa", "omnireduce", "union"),
    *("clt-k", "micro", "zen", "spardl", "s2", "powersgd"),
)
PATIENCE = timedelta(seconds=1.5)
LAYERS = (Layer((900,)), Layer((30, 20), "bfloat16", "transposed"), Layer((40,)))


@pytest.mark.parametrize("recipe", everything())
def test_a_peer_that_hangs_up(cluster, recipe):
    case = Case(recipe, LAYERS, steps=3, settings={"density": 0.05})
    culprit = 1
    ranks = cluster.run(broken.hang_up, 3, case, culprit)
    assert ranks[culprit].raised, "the fuse did not blow"
    for rank in ranks:
        assert rank.raised.startswith("ExchangeError") == rank.state_kept == bool(rank.raised)
        assert rank.again.startswith("ExchangeError")
        assert rank.went_on
        assert rank.left <= 0, "a thread is left"
    assert "given up" in ranks[culprit].again


@pytest.mark.parametrize("fault", soak.SIGNALS)
@pytest.mark.parametrize("recipe", EACH_COLLECTIVE)
def test_a_peer_that_is_killed_or_stopped(recipe, fault):
    case = Case(recipe, LAYERS, steps=3, settings={"density": 0.05})
    with Cluster(3, run_s=120) as mortal:
        lives = mortal.survivors(soak.live, 3, 1, case, 1, fault, 0.05, PATIENCE)
    assert len(lives) == 2
    for life in lives:
        assert len(life.value.updates) >= 2, "it broke off before the peer did"
        assert life.value.raised.startswith("ExchangeError")
        assert life.value.state_kept


@pytest.mark.parametrize("recipe", ["topk(0.05)", "dgc(0.05)", "ok-topk(0.05)"])
@pytest.mark.parametrize(
    ("how", "raised"),
    [
        ("nan", ["NonFiniteError"] * 2),
        ("raise", ["ExchangeError", "KeyError"]),
        ("hang up", ["ExchangeError"] * 2),
    ],
)
def test_in_a_backward_pass(cluster, how, raised, recipe):
    outcomes = cluster.run(broken.ddp_breaks, 2, how, recipe)
    assert [name for name, _, _ in outcomes] == raised
    assert all(kept and went_on for _, kept, went_on in outcomes)
