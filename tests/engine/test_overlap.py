"""Plain sums under way together give the same means as one after the other, and honest times."""

from dataclasses import replace

import pytest
import torch

import thinwire as tw
from thinwire.engine.overlap import _time_covered

SIZES = {"small": 1_000, "large": 9_000, "middle": 5_000}


def means(group, rank, size):
    """Several tensors, each a unit of its own; and what they are said to have cost."""
    sync = tw.Synchronizer(replace(tw.recipe("dense"), unit="tensor"), group)
    for step in range(3):
        grads = {name: torch.full((n,), float(rank + step)) for name, n in SIZES.items()}
        for mean in sync.average_all(grads).values():
            assert torch.equal(mean, torch.full_like(mean, step + (size - 1) / 2))
    rows = sync.stats()["tensors"]
    sync.close()
    return {name: (row["bytes_sent"], row["seconds"]["exchange"]) for name, row in rows.items()}


def test_several_at_once(cluster):
    for costs in cluster.run(means, 3):
        sent = {name: cost[0] for name, cost in costs.items()}
        assert sent == {name: 3 * (2 * 4 * n * 2 // 3) for name, n in SIZES.items()}
        a_element = {costs[name][1] / n for name, n in SIZES.items()}
        assert min(a_element) > 0
        assert max(a_element) == pytest.approx(min(a_element))


@pytest.mark.parametrize(
    "spans, seconds",
    [
        ([], 0),
        ([(1, 3)], 2),
        ([(1, 3), (5, 6)], 3),
        ([(5, 9), (1, 6)], 8),
        ([(1, 9), (2, 3), (8, 10)], 9),
    ],
)
def test_time_under_way_counts_once(spans, seconds):
    assert _time_covered(spans) == seconds
