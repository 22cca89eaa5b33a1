"""OmniReduce: non-zero blocks go to their aggregators, and the union comes back.

Covers collective/_blocks.py.
"""

import pytest

from support.collective import laws
from support.collective.laws import Case
from thinwire.codec import Pair
from thinwire.codec.value import SignValue
from thinwire.collective.omnireduce import OmniReduce
from thinwire.errors import RecipeError
from thinwire.feedback import Momentum, Residual
from thinwire.pipeline import Pipeline
from thinwire.sparsify import BlockTopK, Everything, TopK

CASES = (*laws.SPARSE, *laws.DENSE)


@pytest.mark.parametrize("size", range(1, 9))
def test_keeps_the_laws_whatever_the_codec(cluster, size):
    laws.check_codecs(cluster, size, OmniReduce(16), laws.in_turn(CASES, size), lossless=True)


@pytest.mark.parametrize("block", [1, 7, 8, 1000, 4096])
def test_any_block_size(cluster, block):
    for codec in (laws.RAW, Pair(value=SignValue())):  # sign makes something of zeros, too
        seen = cluster.run(laws.exchange, 3, OmniReduce(block), codec, CASES)
        laws.assert_laws(CASES, seen, lossless=codec is laws.RAW)


@pytest.mark.parametrize("size", [9, 16, 17])
def test_more_ranks(size):
    seen = laws.Threads(size).run(laws.exchange_over, OmniReduce(16), laws.RAW, laws.SPREAD)
    laws.assert_laws(laws.SPREAD, seen, lossless=True)


def bound(case, block, rank, size):
    """Its blocks that others aggregate, and P-1 times the union of those that it does."""
    touched = [
        {i // block for i in laws.dense_of(case.selection(r, size)).nonzero().flatten().tolist()}
        for r in range(size)
    ]
    sent_away = sum(b % size != rank for b in touched[rank])
    aggregated = sum(b % size == rank for b in set.union(*touched))
    blocks = sent_away + (size - 1) * aggregated
    return (4 * block + 4) * blocks + 2 * (size - 1) * laws.HEADER


@pytest.mark.parametrize("size", range(2, 9))
def test_bytes(cluster, size):
    cases = [Case(case.kind, 8001, k) for case in laws.SPREAD for k in (10, 200, 4000)]
    results = cluster.run(laws.exchange, size, OmniReduce(64), laws.RAW, cases)
    for rank, seen in enumerate(results):
        for case, one in zip(cases, seen, strict=True):
            assert one.sent <= bound(case, 64, rank, size), (case, rank)


@pytest.mark.parametrize("feedback", [Residual(), Momentum(0.0)])
def test_conserves_over_steps(cluster, feedback):
    pipelines = [
        Pipeline(sparsifier, codec, OmniReduce(16), feedback, bypass=0)
        for sparsifier in (TopK(0.05), BlockTopK(0.1, 16), Everything())
        for codec in laws.CODECS.values()
    ]
    laws.check_conservation(cluster, 3, pipelines)


@pytest.mark.parametrize("block", [0, -1, 1.5, True])
def test_refuses_what_is_no_block(block):
    with pytest.raises(RecipeError, match="block"):
        OmniReduce(block)
