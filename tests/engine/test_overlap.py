"""Plain sums under way together give the same means as one after the other, and honest times."""

import gc
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch
import torch.distributed as dist

import thinwire as tw
from thinwire.comm import communicator
from thinwire.engine import overlap
from thinwire.engine.backward import BackwardPass

EACH = replace(tw.recipe("dense"), unit="tensor")  # several sums a step
SIZES = {"small": 1_000, "large": 9_000, "middle": 5_000}


def means(group, rank, size):
    """Several tensors, each a unit of its own; and what they are said to have cost."""
    sync = tw.Synchronizer(EACH, group)
    for step in range(3):
        grads = {name: torch.full((n,), float(rank + step)) for name, n in SIZES.items()}
        for mean in sync.average_all(grads).values():
            assert torch.equal(mean, torch.full_like(mean, step + (size - 1) / 2))
    rows = sync.stats()["tensors"]
    sync.close()
    return {name: (row["bytes_sent"], row["seconds"]["exchange"]) for name, row in rows.items()}


def test_several_at_once(cluster):
    for costs in cluster.run(means, 3):
        sent = {name: cost[0] for name, cost in costs.items()}
        assert sent == {name: 3 * (2 * 4 * n * 2 // 3) for name, n in SIZES.items()}
        assert all(seconds > 0 for _, seconds in costs.values())


def begun_alone(group, rank):
    """A synchronizer, and on rank 0 what it has under way: sums that the others never join."""
    sync = tw.Synchronizer(EACH, group, timeout=timedelta(seconds=2))
    grads = {name: torch.ones(n) for name, n in SIZES.items()}
    sync.average_all(grads)
    if rank == 0:
        BackwardPass(sync).add(grads)
    return sync, [work for sum in sync.runner.sums._under_way for work in sum.transfer.works]


def all_threads():
    """Of this process, the backend's too."""
    return len(list(Path("/proc/self/task").iterdir()))


def dropped_under_way(group, rank, size):
    gc.collect()  # what others dropped
    dist.monitored_barrier(group)
    before = all_threads()
    sync, works = begun_alone(group, rank)
    during = all_threads()
    if rank == 1:
        dist.monitored_barrier(group)  # until then its connections stay, and the sums under way
    del sync, works
    gc.collect()
    if rank == 0:
        dist.monitored_barrier(group)
    deadline = time.monotonic() + 20
    while all_threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    return before, during, all_threads()


def test_a_group_may_be_dropped_while_sums_are_under_way(cluster):
    """Its threads end; none of them may be the last to hold it, and wait for itself."""
    for before, during, after in cluster.run(dropped_under_way, 2):
        assert after <= before < during


def who_notes(group, rank, size):
    """How many threads looked at the clock in steps that Python knows nothing of."""
    sync, strangers = tw.Synchronizer(EACH, group), set()

    def clock():
        here = threading.get_ident()
        if here not in {thread.ident for thread in threading.enumerate()}:
            strangers.add(here)
        return time.perf_counter()

    with patch.object(overlap, "time", SimpleNamespace(perf_counter=clock)):
        for _ in range(5):
            sync.average_all({name: torch.ones(n) for name, n in SIZES.items()})
        sync.close()
    return len(strangers)


def test_python_does_nothing_in_the_backends_threads(cluster):
    """It might collect garbage there, and with it the group: that ends where it is found."""
    assert cluster.run(who_notes, 2) == [0, 0]


def broken_off(group, rank, size):
    sync, works = begun_alone(group, rank)
    with patch.object(communicator, "hang_up"):  # of a peer that is gone it closes nothing
        sync.state_dict()  # takes the step back
    done = [work.is_completed() for work in works]
    dist.monitored_barrier(group)
    sync.close()
    return done


def test_after_a_step_was_taken_back_nothing_is_under_way(cluster):
    """The gradients' memory is the caller's again."""
    assert cluster.run(broken_off, 2) == [[True] * len(SIZES), []]
