"""Exchanges that ask the host nothing: the laws hold, whatever the device. Here on the CPU."""

from dataclasses import replace

import pytest
import torch

from thinwire.codec import Pair
from thinwire.codec.index import Chunk12Index, RegionalIndex
from thinwire.codec.value import Bf16Value, Centroid2Value
from thinwire.collective import AllGather, CltK, Micro, OkTopK, UnionAllReduce
from thinwire.comm import GroupCommunicator
from thinwire.cost.exchange import Load
from thinwire.cost.patterns import pattern
from thinwire.sparsify import BlockTopK, ChunkTopK, HashedSlots, PartitionTopK, TopK
from thinwire.types import ExchangeContext, Sparse, TensorSpec

HALF = Pair(RegionalIndex(), Bf16Value())
TWO = Pair(Chunk12Index(), Centroid2Value(64))
WAYS = {
    "allgather": (TopK(0.05), AllGather(), Pair()),
    "allgather 16 bits": (TopK(0.05), AllGather(), HALF),
    "chunks": (ChunkTopK(8, 128), AllGather(), TWO),
    "hashed 2 bits": (HashedSlots(0.05), AllGather(), TWO),
    "hashed": (HashedSlots(0.05), AllGather(), Pair()),
    "hashed 16 bits": (HashedSlots(0.05), AllGather(), HALF),
    "ok-topk": (TopK(0.05), OkTopK(), Pair()),
    "ok-topk 16 bits": (TopK(0.05), OkTopK(), HALF),
    "ok-topk 2 bits": (TopK(0.05), OkTopK(), TWO),
    "clt-k": (TopK(0.05), CltK(), None),
    "clt-k of hashed": (HashedSlots(0.05), CltK(), None),
    "clt-k bf16": (TopK(0.05), CltK("bf16"), None),
    "micro": (PartitionTopK(0.05), Micro(), None),
    "micro of all": (TopK(0.05), Micro(), None),
    "micro bf16": (PartitionTopK(0.05), Micro("bf16"), None),
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
        s = collective.arranged(sparsifier.select(residual, state, ctx), codec)
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
        rounds = "bf16" in name
        most = max(float(x.abs().max()) for x in before)
        bound = 2.0**-8 * ranks * most if rounds else 1e-4
        torch.testing.assert_close(sum(before), ranks * mean[0] + sum(after), rtol=0, atol=bound)


@pytest.mark.parametrize("name", WAYS)
def test_everyone_hears_of_a_gradient_that_is_not_finite(cluster, name):
    for seen in cluster.run(run_steps, 3, name, 1):
        assert seen[0][3]
        assert seen[0][2].isfinite().all()


def drifting(step, rank, numel):
    """Gradients whose mass moves on through the tensor, and of which all ranks have some alike."""
    draw = torch.Generator().manual_seed(1000 * step + rank)
    same = torch.randn(numel, generator=torch.Generator().manual_seed(step))
    place = torch.arange(numel) / numel
    hump = torch.exp(-0.5 * ((place - step / DRIFTS) / 0.1) ** 2)
    return (torch.randn(numel, generator=draw) + same) * (0.05 + hump)


DRIFTS = 24  # steps from one end of the tensor to the other


def run_drifting(group, rank, size, codec, density):
    """Of each step how many elements were selected, are in the mean, and were dealt but unheard."""
    collective, sparsifier, comm = OkTopK(), TopK(density), GroupCommunicator(group)
    residual = torch.zeros(NUMEL)
    state = sparsifier.init(TensorSpec("w", NUMEL, torch.float32, residual.device))
    seen = []
    for step in range(DRIFTS):
        residual += drifting(step, comm.rank, NUMEL)
        ctx = ExchangeContext(
            "w", step, 0, comm, steady=True, gradients=comm.size, selected_density=density
        )
        s = sparsifier.select(residual, state, ctx)
        before = comm.traffic.sent
        reduced = collective.exchange(s, codec, ctx)
        mean, delivered = reduced.total, reduced.delivered.trimmed()
        assert bool((mean[delivered.indices] != 0).all())
        assert delivered.indices.unique().numel() == delivered.count
        delivered.add_to(residual, alpha=-1)
        sent = comm.traffic.sent - before
        seen.append((s.count, int(mean.count_nonzero()), mean, residual.norm().item(), sent))
    return seen


@pytest.mark.parametrize("codec", [Pair(), HALF], ids=["raw", "16 bits"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ok_topk_delivers_k_wherever_the_selections_wander(cluster, ranks, codec):
    for seen in cluster.run(run_drifting, ranks, codec, 0.05):
        for selected, taken, *_ in seen:
            assert selected <= taken <= selected + ranks


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ok_topk_of_everything_is_the_mean(cluster, ranks):
    everyone = cluster.run(run_drifting, ranks, Pair(), 1.0)
    for step in range(DRIFTS):
        mean = sum(drifting(step, rank, NUMEL) for rank in range(ranks)) / ranks
        torch.testing.assert_close(everyone[0][step][2], mean)
        assert all(seen[step][3] == 0 for seen in everyone)


@pytest.mark.parametrize("codec", [Pair(), HALF], ids=["raw", "16 bits"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ok_topk_sends_what_the_cost_model_says(cluster, ranks, codec):
    load = Load(ranks, NUMEL, int(0.05 * NUMEL), backend="nccl")
    expected = pattern(OkTopK(0.05), codec, load).sent
    for seen in cluster.run(run_drifting, ranks, codec, 0.05):
        assert all(sent == pytest.approx(expected, rel=0.03) for *_, sent in seen)
