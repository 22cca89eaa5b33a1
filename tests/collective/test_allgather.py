"""Allgather of sparse payloads: everyone sees every selection and adds them all."""

import pytest

from support.collective import ranks


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


@pytest.mark.parametrize("size", [1, 3, 8])
def test_at_once_or_one_after_the_other_the_bits_are_the_same(cluster, size):
    # Sums of these depend on their order; all ranks share index 5, neighbours share another.
    selections = [([5, r + 6, r + 7], [1e8 / 3**r, -0.1 * r, 0.7]) for r in range(size)]
    numel = 5000
    for once, one_by_one, sparse in zip(
        cluster.run(ranks.allgather, size, selections, numel),
        cluster.run(ranks.allgather, size, selections, numel, False),
        cluster.run(ranks.allgather, size, selections, numel, True, True),
        strict=True,
    ):
        assert once[:2] == one_by_one[:2] == sparse[:2]
        assert once[2] == one_by_one[2]
        assert sparse[2] is None  # the total is sparse


def test_many_entries_are_added_up_in_a_dense_total(cluster):
    selections = [(list(range(r, 60, 2)), [1.0 + r] * len(range(r, 60, 2))) for r in range(2)]
    for total, _, support in cluster.run(ranks.allgather, 2, selections, 100, True, True):
        assert total == [1.0, 2.0] * 30 + [0.0] * 40
        assert support == list(range(60))
