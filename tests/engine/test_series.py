"""What pieces tell step by step, in bounded memory."""

from itertools import pairwise

import torch

import thinwire as tw
from thinwire.engine.series import Series

KNOWN = {"local_threshold", "local_count", "global_threshold", "global_count", "xi"}
RENEWED = {"threshold_evaluated", "regions_agreed"}
BALANCE = {"reduce_imbalance", "gather_imbalance", "balanced"}


def test_memory_is_bounded_and_a_step_that_is_done_again_counts_once():
    series = Series(kept=3)
    for step in (0, 1, 2, 3, 2):
        series.add("w", step, "count", 10.0 * step)
    assert series.rows() == {"w": {"count": {"steps": [1, 2], "values": [10.0, 20.0]}}}


def ok_topk(group, rank, size):
    """Selections that lie in one quarter of the indices."""
    sync = tw.Synchronizer(tw.recipe(RECIPES[size], bypass=0, monitor_xi=2), group)
    for step in range(5):
        grad = torch.randn(4000, generator=torch.Generator().manual_seed(10 * step + rank))
        grad[1000:] *= 1e-3
        sync.average("w", grad)
    return sync.stats()["series"]["w"]


RECIPES = {2: "ok-topk(0.05)", 3: "ok-topk(0.05, consensus='equal', balance='never')"}


def test_ok_topk_tells_thresholds_counts_and_xi_of_each_step(cluster):
    first, second = cluster.run(ok_topk, 2)
    assert first.keys() == KNOWN | RENEWED | BALANCE
    assert first["xi"]["steps"] == [0, 2, 4]
    assert all(one["steps"] == [0, 1, 2, 3, 4] for name, one in first.items() if name != "xi")
    for shared in (KNOWN | RENEWED) - {"local_threshold", "local_count"}:
        assert first[shared] == second[shared]
    for name in ("local_count", "global_count"):
        assert all(0.75 * 200 <= count <= 1.25 * 200 for count in first[name]["values"])
    assert min(first["local_threshold"]["values"] + first["global_threshold"]["values"]) > 0
    evaluated, thresholds = (
        first[name]["values"] for name in ("threshold_evaluated", "global_threshold")
    )
    changes = [float(new != old) for old, new in pairwise([0.0, *thresholds])]
    assert evaluated == changes and 0.0 in changes
    assert first["regions_agreed"]["values"] == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert all(value < 1.1 for value in first["reduce_imbalance"]["values"])


def test_equal_regions_and_a_direct_gather_are_not_balanced(cluster):
    for told in cluster.run(ok_topk, 3):
        assert all(value > 2.5 for value in told["reduce_imbalance"]["values"])  # of at most 3
        assert all(value > 2.5 for value in told["gather_imbalance"]["values"])
        assert not any(told["balanced"]["values"])


def test_gaussiank_tells_what_the_normal_distribution_predicts(cluster):
    for series in cluster.run(gaussiank, 2):
        (predicted,) = series["predicted_count"]["values"]
        assert 0 < predicted < 0.75 * 800  # cubes of normal numbers are more peaked


def gaussiank(group, rank, size):
    sync = tw.Synchronizer(tw.recipe("gaussiank(0.2)", bypass=0), group)
    sync.average("w", torch.randn(4000, generator=torch.Generator().manual_seed(rank)) ** 3)
    return sync.stats()["series"]["w"]
