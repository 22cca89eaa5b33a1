"""`torch.distributed.checkpoint` keeps every rank's state; any number of ranks goes on from it."""

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

import thinwire as tw
from thinwire.frontends.dcp import entry, load

RECIPE = tw.recipe("dgc", density=0.1, bypass=0)
NESTEROV = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)


def open_sync(group, node_size=1):
    return tw.Synchronizer(RECIPE, group, timeout=timedelta(seconds=30), node_size=node_size)


def residual(sync):
    return sync.state_dict()["tensors"]["w"]["feedback/residual"]


def save(group, rank, size, folder, in_background):
    """What waits when it is saved; training goes on meanwhile."""
    sync = open_sync(group)
    sync.average("w", torch.randn(500, generator=torch.Generator().manual_seed(rank)))
    waits = residual(sync)
    state = {"model": {"weight": torch.arange(5.0)}, **entry(sync)}
    if in_background:
        saving = dcp.async_save(state, checkpoint_id=folder)
        sync.average("w", torch.ones(500))
        saving.result()
    else:
        dcp.save(state, checkpoint_id=folder)
    return waits


def resume(group, rank, size, folder):
    sync = open_sync(group)
    load(sync, folder)
    return residual(sync)


def resume_in_nodes_of_two(group, rank, size, folder):
    """What is to be sent: the first rank of a node alone sends what waits."""
    sync = open_sync(group, node_size=2)
    load(sync, folder)
    return torch.zeros(500) if rank % 2 else residual(sync)


def refused(group, rank, size, folder):
    sync = open_sync(group)
    sync.average("w", torch.ones(500))
    before = sync.state_dict()["checksum"]
    with pytest.raises((tw.ThinwireError, dcp.CheckpointException)) as caught:
        load(sync, folder)
    assert sync.state_dict()["checksum"] == before
    return str(caught.value)


@pytest.mark.parametrize("in_background", [False, True])
def test_one_entry_a_rank(cluster, tmp_path, in_background):
    waits = cluster.run(save, 2, str(tmp_path), in_background)
    for before, after in zip(waits, cluster.run(resume, 2, str(tmp_path)), strict=True):
        assert torch.equal(before, after)
    for size in (1, 3):
        torch.testing.assert_close(sum(cluster.run(resume, size, str(tmp_path))), sum(waits))


def test_at_another_size_of_nodes_what_waits_is_kept(cluster, tmp_path):
    waits = cluster.run(save, 4, str(tmp_path), False)
    there = cluster.run(resume_in_nodes_of_two, 4, str(tmp_path))
    torch.testing.assert_close(sum(there), sum(waits))


def test_a_file_that_was_cut_off_or_altered_is_refused_on_all_ranks(cluster, tmp_path):
    cluster.run(save, 2, str(tmp_path), False)
    file = max(Path(tmp_path).glob("__1_*.distcp"))
    whole = file.read_bytes()
    at = whole.index(b"thinwire") + 2000  # in the middle of what waits
    file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for said in cluster.run(refused, 2, str(tmp_path)):
        assert "rank 1: refused: the state was altered since it was saved" in said
    file.write_bytes(whole[: len(whole) // 2])
    cluster.run(refused, 2, str(tmp_path))


def test_a_checkpoint_without_entries(tmp_path):
    dcp.save({"model": torch.ones(3)}, checkpoint_id=tmp_path)
    with pytest.raises(tw.StateError, match=r"no entry thinwire\.rank0"):
        load(open_sync(None), tmp_path)


def one_does_not_see_it(group, rank, size, folder):
    return refused(group, rank, size, folder if rank == 0 else f"{folder}/elsewhere")


def test_a_checkpoint_that_one_rank_does_not_see_is_refused_on_all(cluster, tmp_path):
    cluster.run(save, 2, str(tmp_path), False)
    for said in cluster.run(one_does_not_see_it, 2, str(tmp_path)):
        assert "rank 0: a checkpoint with thinwire.rank0, thinwire.rank1" in said
        assert "rank 1: refused: the checkpoint cannot be read: FileNotFoundError" in said


def local_steps(rank, steps, folder=None):
    """A model in rounds of four local steps: loaded, then trained."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        model = nn.Linear(30, 20)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    handle = tw.outer(model, optimizer, RECIPE, every=4, outer=NESTEROV)
    if folder is not None:
        dcp.load({f"rank{rank}": model.state_dict()}, checkpoint_id=folder)
        load(handle, folder)
    for step in steps:
        draw = torch.Generator().manual_seed(100 * step + rank)
        optimizer.zero_grad()
        model(torch.randn(4, 30, generator=draw)).square().mean().backward()
        optimizer.step()
    return model, handle


def in_the_middle_of_a_round(group, rank, size, folder, in_background):
    """Models differ by rank there, so each has a name of its own."""
    model, handle = local_steps(rank, range(6))
    state = {f"rank{rank}": model.state_dict(), **entry(handle)}
    if in_background:
        dcp.async_save(state, checkpoint_id=folder).result()
    else:
        dcp.save(state, checkpoint_id=folder)
    straight, _ = local_steps(rank, range(12))
    again, _ = local_steps(rank, range(6, 12), folder)
    return torch.equal(straight.weight, again.weight)


@pytest.mark.parametrize("in_background", [False, True])
def test_local_steps_go_on_in_the_middle_of_a_round(cluster, tmp_path, in_background):
    assert cluster.run(in_the_middle_of_a_round, 2, str(tmp_path), in_background) == [True, True]


def with_peers(group, rank, size, folder):
    """Two groups of peers, each with a model of its own, as tensor parallelism has them."""
    peers = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    sync = tw.Synchronizer(RECIPE, peers, timeout=timedelta(seconds=30))
    sync.average("w", torch.randn(500, generator=torch.Generator().manual_seed(rank)))
    waits = residual(sync)
    dcp.save(entry(sync), checkpoint_id=folder)
    load(sync, folder)
    return torch.equal(residual(sync), waits)


def test_groups_of_peers_each_have_entries_of_their_own(cluster, tmp_path):
    assert all(cluster.run(with_peers, 4, str(tmp_path)))
