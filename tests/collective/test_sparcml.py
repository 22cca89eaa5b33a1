"""SparCML: equal regions, each added up by its own rank, dense where they fill in.

Covers collective/_owners.py.
"""

import pytest
import torch

from support.collective import laws
from support.collective.laws import Case
from thinwire.codec import Pair
from thinwire.collective.sparcml import SparCML
from thinwire.comm import GroupCommunicator
from thinwire.errors import RecipeError
from thinwire.feedback import Residual
from thinwire.pipeline import Pipeline
from thinwire.sparsify import Everything, TopK
from thinwire.types import ExchangeContext, Sparse

CASES = (*laws.SPARSE, *laws.DENSE)


@pytest.mark.parametrize("size", range(1, 9))
def test_keeps_the_laws_whatever_the_codec(cluster, size):
    laws.check_codecs(cluster, size, SparCML(), laws.in_turn(CASES, size), lossless=True)


@pytest.mark.parametrize("limit", [0.0, 0.1, 1.0])
def test_the_form_does_not_change_the_laws(cluster, limit):
    laws.check_codecs(cluster, 4, SparCML(limit), [CASES] * 3, lossless=True)


@pytest.mark.parametrize("size", [9, 16, 17])
def test_more_ranks(size):
    seen = laws.Threads(size).run(laws.exchange_over, SparCML(), laws.RAW, laws.SPREAD)
    laws.assert_laws(laws.SPREAD, seen, lossless=True)


def bound(case, rank, size):
    """What it has of other regions; and P-1 times its own region's sum, sparse or dense."""
    low, high = case.numel * rank // size, case.numel * (rank + 1) // size
    supports = [laws.dense_of(case.selection(r, size)) != 0 for r in range(size)]
    outside = int(supports[rank].sum()) - int(supports[rank][low:high].sum())
    union = int(torch.stack(supports).any(0)[low:high].sum())
    share = min(8 * union, 4 * (high - low))
    return 8 * outside + (size - 1) * (share + 2 * laws.HEADER)


@pytest.mark.parametrize("size", range(2, 9))
def test_bytes(cluster, size):
    cases = [Case(kind, 8000, k) for kind in ("uniform", "skewed", "disjoint", "identical")
             for k in (80, 800, 4000)]  # fmt: skip
    for rank, results in enumerate(cluster.run(laws.exchange, size, SparCML(), laws.RAW, cases)):
        for case, seen in zip(cases, results, strict=True):
            assert seen.sent <= bound(case, rank, size), (case, rank)


def comes_sparse(group, rank, size, k, limit):
    """For each codec, whether the total came sparse."""
    s = Case("uniform", 8000, k).selection(rank, size)
    ctx = ExchangeContext(tensor="w", step=0, seed=0, comm=GroupCommunicator(group))
    totals = [SparCML(limit).exchange(s, codec, ctx).total for codec in laws.CODECS.values()]
    return [isinstance(total, Sparse) for total in totals]


def is_shorter_sparse(k, codec):
    """Whether the first of two regions takes fewer bytes as indices and values."""
    parts = [laws.dense_of(Case("uniform", 8000, k).selection(rank, 2)) for rank in range(2)]
    region = sum(parts)[:4000]
    ctx = ExchangeContext(tensor="w", step=0, seed=0, comm=GroupCommunicator())
    indices = region.nonzero().flatten()
    few = codec.encode(Sparse(indices, region[indices], 4000), ctx)
    return few.numel() < codec.encode(region, ctx).numel()


@pytest.mark.parametrize("k", [200, 2000, 4000, 6000])  # 5, 44, 75 and 94 % filled in
def test_goes_dense_when_that_is_shorter(cluster, k):
    expected = [is_shorter_sparse(k, codec) for codec in laws.CODECS.values()]
    assert expected[0] == (k <= 2000)  # raw: 4 bytes per value against 6 to 8
    assert cluster.run(comes_sparse, 2, k, None) == [expected] * 2


@pytest.mark.parametrize(("limit", "sparse"), [(0.4, False), (0.5, True)])
def test_a_given_share_decides_alone(cluster, limit, sparse):
    assert cluster.run(comes_sparse, 2, 2000, limit) == [[sparse] * 3] * 2


@pytest.mark.parametrize("size", [1, 3, 8])
def test_conserves_over_steps(cluster, size):
    pipelines = [
        Pipeline(sparsifier, codec, SparCML(), Residual(), bypass=0)
        for sparsifier in (TopK(0.05), TopK(0.4), Everything())
        for codec in laws.CODECS.values()
    ]
    laws.check_conservation(cluster, size, pipelines)


def huge(group, rank, size):
    numel = 2**34
    s = Sparse(torch.tensor([5, 2**31 + rank, numel - 1]), torch.tensor([1.0, 2.0, -3.0]), numel)
    ctx = ExchangeContext(tensor="w", step=0, seed=0, comm=GroupCommunicator(group))
    reduced = SparCML().exchange(s, Pair(), ctx)
    return reduced.total.indices.tolist(), reduced.total.values.tolist()


def test_indices_beyond_32_bits(cluster):
    expected = ([5, 2**31, 2**31 + 1, 2**31 + 2, 2**34 - 1], [3.0, 2.0, 2.0, 2.0, -9.0])
    assert cluster.run(huge, 3) == [expected] * 3


@pytest.mark.parametrize("limit", [-0.1, 1.5])
def test_refuses_a_share_that_is_none(limit):
    with pytest.raises(RecipeError, match="dense_above"):
        SparCML(limit)
