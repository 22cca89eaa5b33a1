"""How true updates are: known gradients, known updates, real ranks."""

from typing import Any

import pytest
import torch

import thinwire as tw
from support.cluster import Cluster
from thinwire.engine.truth import Likeness
from thinwire.errors import RecipeError


def test_likeness_of_vectors_at_hand() -> None:
    same = Likeness(dot=25.0, update=25.0, mean=25.0)
    assert same.cosine == 1.0 and same.relative_error == 0.0
    half = Likeness(dot=9.0, update=9.0, mean=25.0)  # (3, 0) of (3, 4)
    assert half.cosine == pytest.approx(0.6) and half.relative_error == pytest.approx(0.8)
    assert Likeness().row() == {"cosine": None, "relative_error": None}


def means(group: Any, rank: int, size: int, recipe: str, steps: int) -> dict[str, Any]:
    """What the ranks' statistics say, after steps with gradients that differ by rank."""
    sync = tw.Synchronizer(recipe, group, truth=3)
    gradient = torch.linspace(-1, 1, 4000) * (rank + 1)
    traffic = []
    for _ in range(steps):
        before = sync.comm.traffic.now()
        sync.average("a", gradient.clone())
        traffic.append(sync.comm.traffic.since(before).sent)
    stats = sync.stats()
    said = sync.explain()
    sync.close()
    return {"truth": stats.get("truth"), "traffic": traffic, "said": said}


def test_dense_is_true_and_a_selection_less_so(cluster: Cluster) -> None:
    dense = cluster.run(means, 2, "dense", 3)
    sparse = cluster.run(means, 2, "topk(0.1)", 3)
    assert dense[0]["truth"] == dense[1]["truth"]
    assert dense[0]["truth"]["cosine"] == pytest.approx(1)
    assert dense[0]["truth"]["relative_error"] == pytest.approx(0, abs=1e-6)
    truth = sparse[0]["truth"]
    assert 0 < truth["cosine"] < 0.9 and truth["relative_error"] > 0.5
    assert truth["step"] == 3 and truth["relative_error_now"] == truth["relative_error"]
    assert truth["tensors"]["a"]["cosine"] == truth["cosine"]
    assert {t["truth"]["cosine"] for t in sparse} == {truth["cosine"]}
    assert "cosine" in sparse[0]["said"] and "fast" in sparse[0]["said"]


def test_only_every_third_step_pays_and_what_waits_tells_in_between(cluster: Cluster) -> None:
    for answer in cluster.run(means, 2, "topk(0.1)", 5):
        dear = [sent > 10_000 for sent in answer["traffic"]]
        assert dear == [False, False, True, False, False]
        assert answer["truth"]["relative_error_now"] > answer["truth"]["relative_error"]


def test_before_the_first_comparison_there_is_none(cluster: Cluster) -> None:
    assert [answer["truth"] for answer in cluster.run(means, 2, "topk(0.1)", 2)] == [None, None]


def test_nonsense_is_refused(cluster: Cluster) -> None:
    (refused,) = cluster.run(refuses, 1)
    assert "truth=-1" in refused


def refuses(group: Any, rank: int, size: int) -> str:
    with pytest.raises(RecipeError) as raised:
        tw.Synchronizer("dense", group, truth=-1)
    return str(raised.value)
