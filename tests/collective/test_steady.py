"""Exchanges that ask the host nothing: the laws hold, whatever the device. Here on the CPU."""

from dataclasses import replace

import pytest
import torch

from thinwire.codec import Pair
from thinwire.codec.index import RegionalIndex
from thinwire.codec.value import Bf16Value
from thinwire.collective import AllGather, OkTopK, UnionAllReduce
from thinwire.comm import GroupCommunicator
from thinwire.sparsify import BlockTopK, HashedSlots, TopK
from thinwire.types import ExchangeContext, Sparse, TensorSpec

HALF = Pair(RegionalIndex(), Bf16Value())
WAYS = {
    "allgather": (TopK(0.05), AllGather(), Pair()),
    "allgather 16 bits": (TopK(0.05), AllGather(), HALF),
    "hashed": (HashedSlots(0.05), AllGather(), Pair()),
    "hashed 16 bits": (HashedSlots(0.05), AllGather(), HALF),
    "ok-topk": (TopK(0.05), OkTopK(), Pair()),
    "ok-topk 16 bits": (TopK(0.05), OkTopK(), HALF),
    "union": (BlockTopK(0.05, block=16), UnionAllReduce(16), None),
    "union bf16": (BlockTopK(0.05, block=16), UnionAllReduce(16, "bf16"), None),
}
NUMEL, STEPS = 5003, 4


def run_steps(group, rank, size, name, bad_rank=None):
    """Residual feedback by hand: what was selected from, the mean, and what is left, by step."""
    sparsifier, collective, codec = WAYS[name]
    comm = GroupCommunicator(group)
    residual = torch.zeros(NUMEL)
    state = sparsifier.init(TensorSpec("w", NUMEL, torch.float32, residual.device))
    memory, seen = {}, []
    for step in range(STEPS):
        grad = torch.randn(NUMEL, generator=torch.Generator().manual_seed(31 * step + comm.rank))
        residual += grad
        before, noted = residual.clone(), []
        bad = torch.tensor(int(comm.rank == bad_rank), dtype=torch.int32)
        ctx = ExchangeContext(
            "w", step, 0, comm, steady=True, bad=bad, note_bad=noted.append, memory=memory,
            source=residual, gradients=comm.size, selected_density=0.05,
        )  # fmt: skip
        s = sparsifier.select(residual, state, ctx)
        assert isinstance(s, Sparse)
        if bad_rank == comm.rank:
            s = replace(s, values=s.values.clone())
            s.values[0] = torch.nan
        reduced = collective.exchange(s, codec, ctx)
        delivered = reduced.delivered.add_to(torch.zeros(NUMEL)).nan_to_num(0.0)
        residual -= delivered
        seen.append((before, reduced.total, residual.clone(), any(noted)))
    return seen


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", WAYS)
def test_nothing_is_lost_and_replicas_agree(cluster, name, ranks):
    everyone = cluster.run(run_steps, ranks, name)
    for step in range(STEPS):
        before, mean, after, noted = zip(*(seen[step] for seen in everyone), strict=True)
        assert all(torch.equal(mean[0], other) for other in mean)
        assert not any(noted)
        assert mean[0].count_nonzero() > 0
        # The backend adds in the wire's dtype, and nobody is charged for that rounding.
        rounds = WAYS[name][1] == UnionAllReduce(16, "bf16")
        most = max(float(x.abs().max()) for x in before)
        bound = 2.0**-8 * ranks * most if rounds else 1e-4
        torch.testing.assert_close(sum(before), ranks * mean[0] + sum(after), rtol=0, atol=bound)


@pytest.mark.parametrize("name", WAYS)
def test_everyone_hears_of_a_gradient_that_is_not_finite(cluster, name):
    for seen in cluster.run(run_steps, 3, name, 1):
        assert seen[0][3]
        assert seen[0][2].isfinite().all()
