"""What the ranks do whose step breaks off. Runs in the workers: imports stay few."""

import gc
import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from support.contracts.cases import Case, digest, state_digest
from support.contracts.ranks import open_sync
from thinwire.comm import GroupCommunicator
from thinwire.comm.messages import Waiting
from thinwire.engine import synchronizer

PATIENCE = timedelta(seconds=5)  # Gloo may forget a message to a peer that is just going


class Fuse(GroupCommunicator):
    """A rank that hangs up in the middle: its connections end before its n-th wait."""

    def __init__(self, *arguments: Any) -> None:
        self.waits, self.blows_at = 0, 0
        before = sockets()
        super().__init__(*arguments)
        self._own = sockets() - before

    @contextmanager
    def named(self, phase: str) -> Iterator[Waiting]:
        self.waits += 1
        if self.waits == self.blows_at:
            for descriptor in self._own:
                with socket.socket(fileno=os.dup(descriptor)) as connection, suppress(OSError):
                    connection.getpeername()  # one that listens has none, and stays
                    connection.shutdown(socket.SHUT_RDWR)
            self.give_up("it hung up")
        with super().named(phase) as waiting:
            yield waiting


def sockets() -> set[int]:
    """The descriptors of this process's connections."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if str(link.readlink()).startswith("socket:"):
                found.add(int(link.name))
    return found


def threads() -> int:
    """What still runs, and not only because the last error's frames are still to be collected."""
    gc.collect()
    return sum(1 for _ in Path("/proc/self/task").iterdir())


@dataclass(frozen=True)
class Broken:
    """What became of a step in which a rank hung up."""

    raised: str
    state_kept: bool
    again: str  # what the next call raised, at once
    went_on: bool  # a new group goes on from the state as if nothing had been
    left: int  # threads, Python's and others, when it was closed


def hang_up(group: Any, rank: int, size: int, case: Case, culprit: int) -> Broken:
    """Two whole steps, and a third in the middle of which one rank closes its sockets."""
    clean = open_sync(case, group)
    for step in range(3):
        expected = digest(*clean.average_all(case.gradients(step, rank, size)).values())
    threads_before = threads()
    fuse = Fuse(group, PATIENCE)
    sync = tw.Synchronizer(case.pipeline(), seed=case.seed, comm=fuse)
    for step in range(2):
        before = fuse.waits
        sync.average_all(case.gradients(step, rank, size))
    if rank == culprit:  # somewhere behind the first, in which all agree to begin
        each = fuse.waits - before
        fuse.blows_at = fuse.waits + 2 + seed_of(case.recipe) % (each - 1)
    state = state_digest(sync)
    raised = outcome(sync, case, rank, size)
    kept = state_digest(sync) == state
    again = outcome(sync, case, rank, size)
    saved = sync.state_dict()
    # Who heard all it needed has made a whole step; the others wait for it only here.
    everyone = agreed(group, bool(raised))
    sync.close()
    fuse.close()
    left = threads() - threads_before
    went_on = True
    if everyone:
        loaded = open_sync(case, group)
        loaded.load_state_dict(saved)
        update = digest(*loaded.average_all(case.gradients(2, rank, size)).values())
        went_on = (update, state_digest(loaded)) == (expected, state_digest(clean))
    return Broken(raised, kept, again, went_on, left)


def outcome(sync: tw.Synchronizer, case: Case, rank: int, size: int) -> str:
    try:
        sync.average_all(case.gradients(2, rank, size))
    except tw.ThinwireError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def seed_of(text: str) -> int:
    return int(hashlib.blake2b(text.encode(), digest_size=4).hexdigest(), 16)


def agreed(group: Any, mine: bool) -> bool:
    votes = torch.tensor([int(mine)])
    dist.all_reduce(votes, dist.ReduceOp.MIN, group=group)
    return bool(votes)


@dataclass
class Trained:
    """A model of several buckets behind DDP."""

    model: nn.Module
    ddp: DDP
    handle: Any

    @classmethod
    def start(cls, group: Any, recipe: str) -> "Trained":
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 64), nn.Linear(64, 64), nn.Linear(64, 8))
        ddp = DDP(model, process_group=group, bucket_cap_mb=0.002)
        handle = tw.compress(ddp, tw.recipe(recipe, bypass=10), timeout=PATIENCE)
        return cls(model, ddp, handle)

    def backward(self, rank: int, step: int) -> str:
        draw = torch.Generator().manual_seed(100 * step + rank)
        self.ddp.zero_grad()
        self.ddp(torch.randn(16, 20, generator=draw)).square().mean().backward()
        return digest(*(p.grad for p in self.model.parameters() if p.grad is not None))


def ddp_breaks(group: Any, rank: int, size: int, how: str, recipe: str) -> tuple[str, bool, bool]:
    """Two backward passes, and a third that breaks off: what was raised, whether the state is that
    before it, and whether a new group goes on from there as from one saved in time.
    """
    synchronizer.GroupCommunicator = Fuse  # type: ignore[misc]
    try:
        trained = Trained.start(group, recipe)
    finally:
        synchronizer.GroupCommunicator = GroupCommunicator  # type: ignore[misc]
    fuse = trained.handle.synchronizer.comm
    for step in range(2):
        trained.backward(rank, step)
    saved, before = trained.handle.state_dict(), state_digest(trained.handle.synchronizer)
    if how == "hang up" and rank == 1:
        fuse.blows_at = fuse.waits + 4

    def blow(grad: torch.Tensor) -> torch.Tensor:
        if how == "raise" and rank == 1:
            raise KeyError("in the middle of backward")
        return grad * torch.nan if how == "nan" and rank == 1 else grad

    # The first layer's gradient is in the last bucket.
    trained.model.get_parameter("0.weight").register_hook(blow)
    raised = ""
    try:
        trained.backward(rank, 2)
    except Exception as error:
        raised = type(error).__name__
    state = trained.handle.state_dict()
    kept = state_digest(trained.handle.synchronizer) == before
    ways = []
    for loaded in (saved, state):
        fresh = Trained.start(group, recipe)
        fresh.handle.load_state_dict(loaded)
        ways.append(fresh.backward(rank, 2) + state_digest(fresh.handle.synchronizer))
    return raised, kept, ways[0] == ways[1]
