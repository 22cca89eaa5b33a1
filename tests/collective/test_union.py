"""Union allreduce: a bitmap of blocks, then one dense allreduce over those that anyone touched.

Covers collective/touched.py.
"""

import pytest
import torch

import thinwire as tw
from support.collective import laws
from support.collective.laws import Case
from thinwire.collective import touched
from thinwire.collective.union import UnionAllReduce
from thinwire.comm import GroupCommunicator
from thinwire.errors import RecipeError
from thinwire.feedback import NoFeedback, Residual
from thinwire.pipeline import Pipeline
from thinwire.sparsify import BlockTopK, Everything, RandomK, TopK
from thinwire.types import ExchangeContext

CASES = (*laws.SPARSE, *laws.DENSE)
ADDING = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("size", range(1, 9))
def test_keeps_the_laws_in_every_wire_dtype(cluster, size):
    shares = laws.in_turn(CASES, size)
    trials = [
        (UnionAllReduce(16, dtype), None, cases)
        for dtype, cases in zip(ADDING, shares, strict=True)
    ]
    seen = cluster.run(laws.exchange_each, size, trials)
    for number, (dtype, adding) in enumerate(ADDING.items()):
        by_rank = [results[number] for results in seen]
        laws.assert_laws(shares[number], by_rank, lossless=dtype == "fp32", adding=adding)


@pytest.mark.parametrize("block", [1, 7, 8, 1000, 4096])
def test_any_block_size(cluster, block):
    seen = cluster.run(laws.exchange, 3, UnionAllReduce(block), None, CASES)
    laws.assert_laws(CASES, seen, lossless=True)


@pytest.mark.parametrize("size", [15, 17, 33, 256])
def test_more_ranks_gather_bitmaps_or_add_flags(size, monkeypatch):
    """With 256 ranks all touching a block, a count in a byte would come out as zero."""
    monkeypatch.setattr(touched, "ROUND", 0)  # flags from 17 ranks on, however few the blocks
    cases = (Case("identical", 40, 3), Case("uniform", 40, 1), Case("one rank", 40))
    cases = cases if size < 256 else cases[:1]
    seen = laws.Threads(size).run(laws.exchange_over, UnionAllReduce(4), None, cases)
    laws.assert_laws(cases, seen, lossless=True)


def bound(case, block, size, itemsize):
    """The bitmap to everyone, and the ring's share of the union's values."""
    touched = torch.zeros(-(-case.numel // block), dtype=torch.bool)
    for rank in range(size):
        touched[laws.dense_of(case.selection(rank, size)).nonzero().flatten() // block] = True
    bitmap = (size - 1) * -(-touched.numel() // 8)
    return bitmap + 2 * (size - 1) * int(touched.sum()) * block * itemsize // size


@pytest.mark.parametrize(
    ("size", "dtype", "itemsize"), [*((p, "fp32", 4) for p in range(2, 9)), (3, "bf16", 2)]
)
def test_bytes(cluster, size, dtype, itemsize):
    cases = [Case(case.kind, 8001, k) for case in laws.SPREAD for k in (10, 200, 4000)]
    for results in cluster.run(laws.exchange, size, UnionAllReduce(64, dtype), None, cases):
        for case, seen in zip(cases, results, strict=True):
            assert seen.sent == bound(case, 64, size, itemsize), case


@pytest.mark.parametrize("numel", [500, 512])
def test_conserves_over_steps(cluster, numel):
    choices = (TopK(0.05), BlockTopK(0.1, 16), RandomK(0.1), TopK(0.6), Everything())
    for dtype, tolerance in (("fp32", 2e-5), ("bf16", 0.1)):  # the backend adds in this dtype
        collective = UnionAllReduce(16, dtype)
        pipelines = [Pipeline(s, None, collective, Residual(), bypass=0) for s in choices]
        laws.check_conservation(cluster, 3, pipelines, numel, tolerance)


def shared_by_all(group, rank, size):
    """The total, and whether it was built in the buffer that was offered."""
    out = torch.full((64,), 7.0)
    ctx = ExchangeContext(tensor="w", step=0, seed=0, comm=GroupCommunicator(group), out=out)
    reduced = UnionAllReduce(16).exchange(torch.ones(64), None, ctx)
    return reduced.total.tolist(), reduced.total.data_ptr() == out.data_ptr()


def test_when_everything_is_touched_it_is_dense_allreduce(cluster):
    assert cluster.run(shared_by_all, 3) == [([3.0] * 64, True)] * 3


def test_refuses_what_it_does_not_know():
    with pytest.raises(RecipeError, match="block"):
        UnionAllReduce(0)
    with pytest.raises(RecipeError, match="dtype"):
        UnionAllReduce(dtype="int8")


def scaled_mean(group, rank, size):
    """Values that are not the tensor's travel as they were chosen, and are divided once."""
    pipeline = tw.Pipeline(
        RandomK(0.5, unbiased=True), None, UnionAllReduce(4, "bf16"), NoFeedback(), bypass=0
    )
    return tw.Synchronizer(pipeline, group).average("w", torch.ones(64))


def test_scaled_values_are_divided_once(cluster):
    for mean in cluster.run(scaled_mean, 2):
        assert mean.unique().tolist() == [0.0, 2.0]
