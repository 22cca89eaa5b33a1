"""Partitions: each rank its own in each step, and all of them in P steps."""

import pytest
import torch

from support.sparsify import Place, at, draw, spec_of
from thinwire.sparsify import PartitionTopK
from thinwire.sparsify.partition import partition_edges
from thinwire.types import PADDING, StepContext

RANKS = 4


def chosen(x, rank, step=0, own=True, steady=False, density=0.05):
    ctx = StepContext("w", step, 7, Place(rank, RANKS), steady=steady)
    sparsifier = PartitionTopK(density, own)
    return sparsifier.select(x, sparsifier.init(spec_of(x)), ctx)


@pytest.mark.parametrize("numel", [1003, 20_000])
def test_ranks_have_nothing_in_common_and_all_partitions_have_their_turn(numel) -> None:
    x = draw("normal", numel)
    edges = partition_edges(numel, RANKS)
    for step in range(RANKS):
        lists = [chosen(x, rank, step).indices for rank in range(RANKS)]
        together = torch.cat(lists)
        assert together.unique().numel() == together.numel()
        for rank, indices in enumerate(lists):
            low, high = edges[(rank + step) % RANKS], edges[(rank + step) % RANKS + 1]
            largest = x[low:high].abs().topk(indices.numel()).indices.sort().values + low
            assert torch.equal(indices, largest)
            assert abs(indices.numel() - 0.05 * (high - low)) <= 1


@pytest.mark.parametrize("numel", [0, 1, 3, 5, 1000, 1003])
@pytest.mark.parametrize("density", [0.05, 1.0])
def test_a_steady_step_has_as_many_on_every_rank(numel, density) -> None:
    x = draw("normal", numel)
    selections = [chosen(x, rank, 1, True, True, density) for rank in range(RANKS)]
    assert len({s.count for s in selections}) == 1
    for s in selections:
        there = s.indices != PADDING
        assert s.padded or there.all()
        assert torch.equal(s.values[there], x[s.indices[there]]) and not s.values[~there].any()


def test_of_each_partition_as_many() -> None:
    x = draw("normal", 1000) * torch.linspace(0.01, 1, 1000)
    selected = chosen(x, 2, own=False)
    counts = [int(((selected.indices // 250) == part).sum()) for part in range(RANKS)]
    assert counts == [12] * RANKS
    assert torch.equal(selected.indices, chosen(x, 0, own=False).indices)


def test_the_last_step_s_threshold_changes_nothing() -> None:
    sparsifier, x = PartitionTopK(0.1), draw("normal", 3000)
    state = sparsifier.init(spec_of(x))
    for step in range(6):
        x = x * 3 if step % 2 else x / 7
        kept = sparsifier.select(x, state, at(step))
        fresh = sparsifier.select(x, sparsifier.init(spec_of(x)), at(step))
        assert torch.equal(kept.indices, fresh.indices)
        assert all(value.dim() == 0 for value in state.values())
