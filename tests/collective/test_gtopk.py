"""gTop-k: a tree of pruned sums that loses nothing, and the paper's bookkeeping that does."""

import math
import time

import pytest
import torch

from support.collective import laws
from support.collective.laws import Case
from thinwire.codec import Pair
from thinwire.collective.gtopk import GTopK
from thinwire.comm import GroupCommunicator
from thinwire.errors import RecipeError
from thinwire.feedback import Momentum, Residual
from thinwire.pipeline import Pipeline
from thinwire.sparsify import TopK
from thinwire.types import ExchangeContext, Sparse, TensorSpec


def top(x, k):
    """Exactly the k largest magnitudes of a dense vector; among equals the first."""
    out = torch.zeros_like(x)
    places = sorted(range(x.numel()), key=lambda i: (-abs(x[i].item()), i))[:k]
    out[places] = x[places]
    return out


def tree(parts, k):
    """The paper's figure 3 in dense vectors, for any P."""
    parts = [top(x, k) for x in parts]
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [top(p[0] + p[1], k) if len(p) == 2 else p[0] for p in pairs]
    return parts[0]


@pytest.mark.parametrize("size", range(1, 9))
def test_keeps_the_laws_whatever_the_codec(cluster, size):
    shares = laws.in_turn(laws.SPARSE, size)
    laws.check_codecs(cluster, size, GTopK(0.03), shares, lossless=False)


@pytest.mark.parametrize(("size", "exact"), [*((p, False) for p in range(1, 9)), (8, True)])
def test_is_the_tree_of_top_k_merges_bit_for_bit(cluster, size, exact):
    cases = (*laws.SPREAD, Case("tied"), Case("uneven"), Case("one rank"), Case("rows"))
    seen = cluster.run(laws.exchange, size, GTopK(0.03, exact), laws.RAW, cases)
    for number, case in enumerate(cases):
        chosen = [laws.dense_of(case.selection(rank, size)) for rank in range(size)]
        expected = tree(chosen, 30)
        for rank, results in enumerate(seen):
            assert torch.equal(results[number].total, expected), case
            if not exact:
                mine = torch.where(expected != 0, chosen[rank], 0)
                assert torch.equal(results[number].delivered, mine), case


@pytest.mark.parametrize("size", [9, 16, 17, 33])
def test_more_ranks(size):
    cases = laws.SPREAD
    seen = laws.Threads(size).run(laws.exchange_over, GTopK(0.03), laws.BF16, cases)
    laws.assert_laws(cases, seen, lossless=False)


@pytest.mark.parametrize("size", range(2, 9))
def test_the_busiest_rank_moves_4k_log_p_words(cluster, size):
    k, rounds = 300, math.ceil(math.log2(size))
    cases = [Case(case.kind, 10_000, k) for case in laws.SPREAD]
    for results in cluster.run(laws.exchange, size, GTopK(k / 10_000), laws.RAW, cases):
        for seen in results:
            assert seen.sent + seen.received <= 4 * (4 * k * rounds) + 2 * rounds * laws.HEADER


def lost_norm(group, rank, size, exact, k):
    """The norm of Σ selected - total - Σ kept, over that of Σ selected."""
    comm = GroupCommunicator(group)
    numel = 10_000
    draw = torch.Generator().manual_seed(rank)
    common = torch.randn(numel, generator=torch.Generator().manual_seed(99))
    x = common + torch.randn(numel, generator=draw)
    ctx = ExchangeContext(tensor="w", step=0, seed=0, comm=comm)
    topk, spec = TopK(k / numel), TensorSpec("w", numel, x.dtype, x.device)
    s = topk.select(x, topk.init(spec), ctx)
    reduced = GTopK(k / numel, exact).exchange(s, Pair(), ctx)
    given, settled = s.to_dense(), reduced.delivered.to_dense()
    comm.all_reduce(given)
    comm.all_reduce(settled)
    missing = settled - reduced.total.to_dense()
    return (missing.norm() / given.norm()).item()


@pytest.mark.parametrize(("size", "least"), [(4, 0.02), (8, 0.04)])
def test_the_papers_bookkeeping_loses_what_exact_keeps(cluster, size, least):
    assert cluster.run(lost_norm, size, True, 100)[0] < 1e-6
    assert cluster.run(lost_norm, size, False, 100)[0] > least
    assert GTopK().conserves
    assert not GTopK(exact=False).conserves


@pytest.mark.parametrize("size", [1, 3, 8])
def test_conserves_over_steps(cluster, size):
    pipelines = [
        Pipeline(TopK(0.05), codec, GTopK(0.05), feedback, bypass=0)
        for codec in laws.CODECS.values()
        for feedback in (Residual(), Momentum(0.0))
    ]
    laws.check_conservation(cluster, size, pipelines)


def huge(group, rank, size):
    numel = 2**34
    indices = torch.tensor([5, 2**31 + rank, numel - 2, numel - 1])
    s = Sparse(indices, torch.tensor([1.0, 2.0 + rank, -3.0, 0.1]), numel)
    ctx = ExchangeContext(tensor="w", step=0, seed=0, comm=GroupCommunicator(group))
    reduced = GTopK(3 / numel).exchange(s, Pair(), ctx)
    return reduced.total.indices.tolist(), reduced.total.values.tolist()


def test_indices_beyond_32_bits(cluster):
    expected = ([5, 2**31 + 2, 2**34 - 2], [3.0, 4.0, -9.0])  # 5 ties with 2^31 + 1
    assert cluster.run(huge, 3) == [expected] * 3


def warm_up(group, rank, size):
    comm = GroupCommunicator(group)
    s = Case("uniform").selection(rank, size)
    ctx = ExchangeContext(tensor="w", step=0, seed=0, comm=comm, density=0.005)
    return GTopK(0.03).exchange(s, Pair(), ctx).total.count


def test_a_schedules_density_comes_first(cluster):
    assert cluster.run(warm_up, 3) == [5, 5, 5]


def delayed(group, rank, size, order):
    """Ranks come to the exchange one after the other."""
    time.sleep(0.05 * order[rank])
    return laws.exchange(group, rank, size, GTopK(0.03), laws.RAW, laws.SPREAD)


def test_the_result_does_not_depend_on_timing(cluster):
    digests = {
        tuple(seen.digest for seen in cluster.run(delayed, 5, order)[0])
        for order in ([0] * 5, [0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3])
    }
    assert len(digests) == 1


def test_refuses_what_it_cannot_prune():
    comm = GroupCommunicator()
    ctx = ExchangeContext(tensor="w", step=0, seed=0, comm=comm)
    with pytest.raises(RecipeError, match="TopK"):
        GTopK().exchange(torch.ones(4), Pair(), ctx)
    for density in (0, 1.5, -1):
        with pytest.raises(RecipeError, match="density"):
            GTopK(density)
