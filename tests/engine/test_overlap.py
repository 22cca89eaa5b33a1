"""Plain sums under way together give the same means as one after the other, and honest times."""

from dataclasses import replace

import torch

import thinwire as tw

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
        assert all(seconds > 0 for _, seconds in costs.values())
