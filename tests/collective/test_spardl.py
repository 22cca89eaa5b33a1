"""SparDL: blocks pruned in every hop, for any P, and all that was pruned stays with some rank."""

import pytest
import torch

from support.collective import laws
from support.collective.laws import Case
from thinwire.codec import Pair
from thinwire.codec.index import BloomIndex
from thinwire.collective import SparDL
from thinwire.collective.spardl import blocks_sent, distances
from thinwire.errors import RecipeError
from thinwire.feedback import Residual
from thinwire.pipeline import Pipeline
from thinwire.sparsify import ChunkTopK, PartitionTopK, TopK

PRUNED = SparDL(0.03)


@pytest.mark.parametrize("size", range(1, 9))
def test_keeps_the_laws_whatever_the_codec(cluster, size):
    shares = laws.in_turn(laws.SPARSE, size)
    laws.check_codecs(cluster, size, PRUNED, shares, lossless=False)


@pytest.mark.parametrize("size", [1, 3, 6])
def test_keeps_all_where_there_is_room(cluster, size):
    seen = cluster.run(laws.exchange, size, SparDL(1.0), laws.RAW, laws.SPARSE)
    laws.assert_laws(laws.SPARSE, seen, lossless=True)


@pytest.mark.parametrize("size", [9, 12, 17])
def test_more_ranks(size):
    seen = laws.Threads(size).run(laws.exchange_over, PRUNED, laws.RAW, laws.SPREAD)
    laws.assert_laws(laws.SPREAD, seen, lossless=False)


@pytest.mark.parametrize("size", range(2, 20))
def test_each_block_reaches_its_rank_once(size):
    """By the rounds alone: from every rank to every other, and P - 1 blocks in all."""
    assert sum(blocks_sent(distance, size) for distance in distances(size)) == size - 1
    for ahead in range(size):
        left = ahead
        for distance in distances(size):
            if left >= distance:
                left -= distance
        assert left == 0


@pytest.mark.parametrize("size", range(2, 9))
def test_bytes(cluster, size):
    """4k·(P-1)/P words, in ⌈log2 P⌉ messages and an allgather; k in the result."""
    cases = [Case(kind, 16_000, k) for kind in ("uniform", "skewed", "disjoint", "identical")
             for k in (160, 1600)]  # fmt: skip
    for case in cases:
        collective = SparDL(case.k / case.numel)
        (seen,) = zip(*cluster.run(laws.exchange, size, collective, laws.RAW, [case]), strict=True)
        rooms = case.k + size  # each block's is rounded
        formula = 4 * rooms * (size - 1) / size * 4
        headers = (len(distances(size)) + size - 1) * 2 * laws.HEADER
        for one in seen:
            assert one.sent <= formula + headers
            assert int(one.total.count_nonzero()) <= rooms


def test_takes_the_largest_sums_of_each_block(cluster):
    case = Case("identical", 1000, 400)
    seen = cluster.run(laws.exchange, 4, SparDL(0.04), laws.RAW, [case])
    total = seen[0][0].total
    exact = sum(laws.dense_of(case.selection(rank, 4)) for rank in range(4))
    for block in range(4):
        own = slice(250 * block, 250 * (block + 1))
        assert int(total[own].count_nonzero()) == 10
        kept = total[own].abs().sum()
        assert kept >= 0.6 * exact[own].abs().topk(10).values.sum()


@pytest.mark.parametrize("numel", [2, 501])
def test_conserves_over_steps(cluster, numel):
    choices = (PartitionTopK(0.1, own=False), TopK(0.05), ChunkTopK(4, 64))
    pipelines = [Pipeline(s, laws.BF16, SparDL(), Residual(), bypass=0) for s in choices]
    laws.check_conservation(cluster, 3, pipelines, numel)


def test_refuses_what_it_cannot_do():
    with pytest.raises(RecipeError, match="density"):
        SparDL(0.0)
    with pytest.raises(RecipeError, match="lossless index codec"):
        Pipeline(TopK(0.1), Pair(BloomIndex()), SparDL())
    with pytest.raises(RecipeError, match="choose a sparsifier"):
        SparDL().exchange(torch.ones(3), laws.RAW, None)
