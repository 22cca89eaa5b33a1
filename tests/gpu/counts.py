"""What ranks ask of the host and of the network in a step, and the bytes that they send."""

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from frontends.test_ddp import device_of, twins
from gpu.ranks import TIMEOUT, Layers
from support.counting import Counts, counted
from thinwire.bench.sockets import socket_bytes

WIDTH, DEPTH = 256, 4
WARM_UP = 4  # kernels are compiled, buckets rebuilt, buffers planned
NUMEL = 4_000_000


def steps_of(
    group: Any, rank: int, size: int, recipe: str, steps: int, device: str
) -> tuple[int, list[Counts]]:
    """The number of DDP's buckets, and what each step took."""
    model, _ = twins(lambda: Layers(WIDTH, DEPTH), device)
    ddp = DDP(model, process_group=group, bucket_cap_mb=WIDTH * WIDTH * 4 / 2**20)
    handle = tw.compress(ddp, recipe, timeout=TIMEOUT)
    data = torch.Generator().manual_seed(rank)
    inputs = [torch.randn(8, WIDTH, generator=data).to(device) for _ in range(WARM_UP + steps)]
    report = []
    for step, x in enumerate(inputs):
        if device == "cuda":
            torch.cuda.synchronize()
        with counted() as counts:
            ddp(x).square().mean().backward()
        if step >= WARM_UP:
            report.append(counts)
        ddp.zero_grad()
    buckets = len(ddp.reducer._get_zeros_like_grad_buckets())
    handle.close()
    return buckets, report


def known(group: Any, rank: int, size: int, recipe: str, device: str) -> tuple[int, Counts]:
    """Counts of nothing, and of some things that must be seen."""
    own = dist.new_group(backend="gloo")
    sync = tw.Synchronizer(recipe, group, timeout=TIMEOUT)
    with counted() as nothing:
        pass
    x = torch.ones(5000, device=device)
    with counted() as counts:
        sync.average("w", x)
        # One message each way, in the order of the ranks.
        for sender in range(size):
            if rank == sender:
                dist.send(torch.ones(1), (rank + 1) % size, group=own)
            elif rank == (sender + 1) % size:
                dist.recv(torch.ones(1), sender, group=own)
        if device == "cuda":
            x.sum().item()
            torch.cuda.synchronize()
            done = torch.cuda.Event()
            done.record()
            done.synchronize()
    sync.close()
    return nothing.nccl.total() + nothing.gloo.total() + nothing.syncs.total(), counts


def bytes_of(group: Any, rank: int, size: int, recipe: str, device: str) -> tuple[int, int]:
    """Bytes sent in two steps: by `stats`, and as the kernel counts them on the sockets."""
    sync = tw.Synchronizer(recipe, group, timeout=TIMEOUT)
    data = torch.Generator().manual_seed(rank)
    for step in range(4):
        if step == 2:  # connections are open, thresholds found
            before = sync.stats()["total"]["bytes_sent"], written(group)
        sync.average("w", torch.randn(NUMEL, generator=data).to(device))
    after = sync.stats()["total"]["bytes_sent"], written(group)
    meet(group)  # before a peer that is done hangs up, and the counts are gone
    sync.close()
    return after[0] - before[0], after[1] - before[1]


def written(group: Any) -> int:
    """Bytes on the sockets, once the step is over everywhere. To meet is a few bytes itself."""
    meet(group)
    counts = socket_bytes()
    assert counts is not None
    return counts[0]


def meet(group: Any) -> None:
    meeting = torch.zeros(1, device=device_of(group))
    dist.all_reduce(meeting, group=group)
    meeting.item()
