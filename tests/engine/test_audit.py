"""Replicas that came apart are found out, by rank and tensor."""

from datetime import timedelta

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from thinwire.comm import GroupCommunicator
from thinwire.engine.audit import Audit

TIMEOUT = timedelta(seconds=30)


def parameters(group, rank, size, odd):
    """One bit of one weight of the odd rank flips after the second step; an audit every third."""
    torch.random.default_generator.manual_seed(0)
    ddp = DDP(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), process_group=group)
    handle = tw.compress(ddp, "topk(0.1)", audit=3, timeout=TIMEOUT)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(6):
        optimizer.zero_grad()
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + rank))
        try:
            ddp(x).square().mean().backward()
        except tw.DisagreementError as error:
            return step, str(error)
        optimizer.step()
        if step == 3 and rank == odd:
            ddp.module[1].weight.data.view(torch.int32)[0, 0] ^= 1
    handle.close()
    return None


def test_one_bit_of_a_parameter(cluster):
    for step, said in cluster.run(parameters, 3, 1):
        assert step == 5
        assert said == (
            "the ranks' parameters differ after 6 steps: rank 1 came apart from rank 0, 2 in 1 of "
            "4 tensors (1.weight): go on from a checkpoint"
        )


def test_replicas_that_are_the_same(cluster):
    assert cluster.run(parameters, 3, None) == [None] * 3


def updates(group, rank, size):
    sync = tw.Synchronizer("dense", group, audit=1, timeout=TIMEOUT)
    rows = torch.sparse_coo_tensor([[rank]], [[1.0, 2.0]], (4, 2), check_invariants=False)
    sync.average_all({"w": torch.randn(10), "rows": rows, "half": torch.ones(3).half()})
    sync.audit = Audit(sync.comm, 2)
    sync.average_all({"w": torch.randn(10)})
    sync.average_all({"w": torch.randn(10)})
    with pytest.raises(
        tw.DisagreementError, match=r"rank 1 came apart from rank 0 in 7 of 7 .*2 more"
    ):
        sync.audit.compare("they", {f"w{i}": torch.full((3,), float(rank)) for i in range(7)})


def test_updates_without_ddp(cluster):
    cluster.run(updates, 2)


def settings(group, rank, size):
    with pytest.raises(tw.DisagreementError, match="audit=1"):
        tw.Synchronizer("dense", group, audit=rank, timeout=TIMEOUT)


def test_an_audit_on_some_ranks_only_is_refused(cluster):
    cluster.run(settings, 2)


def test_what_is_no_number_of_steps():
    with pytest.raises(tw.RecipeError, match="audit"):
        Audit(GroupCommunicator(), -1)
