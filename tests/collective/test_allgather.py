"""Allgather of sparse payloads: everyone sees every selection and adds them all."""

import pytest

from collective import ranks


@pytest.mark.parametrize("size", range(1, 9))
def test_adds_what_overlaps_and_what_does_not(cluster, size):
    # All have index 0; each also has one of its own.
    selections = [([0, r + 1], [1.0, 10.0 * (r + 1)]) for r in range(size)]
    expected = [float(size)] + [10.0 * (r + 1) for r in range(size)] + [0.0]
    results = cluster.run(ranks.allgather, size, selections, size + 2)
    for rank, (total, delivered, support) in enumerate(results):
        assert total == expected
        assert [i for i, v in enumerate(delivered) if v] == [0, rank + 1]
        assert support == list(range(size + 1))


def test_ranks_may_send_different_counts_and_nothing(cluster):
    selections = [([], []), ([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0]), ([3], [-4.0])]
    for total, _, _ in cluster.run(ranks.allgather, 3, selections, 5):
        assert total == [1, 2, 3, 0, 0]


def test_nobody_sends_anything(cluster):
    for total, delivered, _ in cluster.run(ranks.allgather, 3, [([], [])] * 3, 4):
        assert total == delivered == [0, 0, 0, 0]


def test_an_empty_tensor(cluster):
    for total, delivered, _ in cluster.run(ranks.allgather, 3, [([], [])] * 3, 0):
        assert total == delivered == []
