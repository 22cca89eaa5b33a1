"""What the ranks of the policy tests do. Runs in the workers: imports stay few."""

import itertools
import os
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist

from support.sockets import settled_socket_bytes
from thinwire.bench.sockets import socket_bytes
from thinwire.comm import GroupCommunicator, Nodes, Traffic
from thinwire.cookbook import recipe
from thinwire.cost.calibration import calibrate
from thinwire.engine.synchronizer import Synchronizer
from thinwire.types import ExchangeContext, Sparse

# The clock of a test is not the network's: what is tried need not be large.
small_messages = patch("thinwire.cost.probe.LARGEST", 1 << 18)
N = 240_000  # a P-th of it is not near 2^16, where raw indices change their width


def selection(rank: int, k: int, width: int, seed: int) -> Sparse | torch.Tensor:
    """k of N elements in blocks of `width`, independent of the other ranks' choices."""
    own = torch.Generator().manual_seed(1000 * seed + rank)
    if k == N:
        return torch.randn(N, generator=own)
    blocks = torch.randperm(N // width, generator=own)[: k // width].sort().values
    indices = (blocks[:, None] * width + torch.arange(width)).flatten()
    return Sparse(indices, torch.randn(k, generator=own), N)


def mean_sent(group, rank, size, collective, codec, k, width):
    """Bytes and count of the second step: Ok-Topk evaluates its thresholds in the first."""
    comm, memory = GroupCommunicator(group), {}
    for step in range(2):
        before = comm.traffic.sent
        ctx = ExchangeContext(tensor="t", step=step, seed=0, comm=comm, memory=memory)
        total = collective.exchange(selection(rank, k, width, step), codec, ctx).total
    sent = comm.traffic.sent - before
    comm.close()
    return sent, total.count if isinstance(total, Sparse) else None


def written(group, rank, size, collective, codec, k):
    """Bytes on the sockets of the second step, as the kernel counts them, and its count."""
    settled_socket_bytes()
    comm, memory = GroupCommunicator(group), {}
    for step in range(2):
        ctx = ExchangeContext(tensor="t", step=step, seed=0, comm=comm, memory=memory)
        dist.barrier(group)
        before = socket_bytes()
        total = collective.exchange(selection(rank, k, 1, step), codec, ctx).total
        after = socket_bytes()
    dist.barrier(group)  # who is done lets go of its sockets, and so its peers of theirs
    comm.close()
    return after[0] - before[0], total.count if isinstance(total, Sparse) else None


def step_written(group, rank, size, recipe, shapes):
    """Bytes on the sockets of the third step of a whole model, as the kernel counts them."""
    settled_socket_bytes()
    sync, own = Synchronizer(recipe, group), torch.Generator().manual_seed(rank)
    for _ in range(3):
        grads = {name: torch.randn(shape, generator=own) for name, shape in shapes.items()}
        dist.barrier(group)
        before = socket_bytes()
        sync.average_all(grads)
        after = socket_bytes()
    dist.barrier(group)  # who is done lets go of its sockets, and so its peers of theirs
    sync.close()
    return after[0] - before[0]


def nodes_sent(group, rank, size, collective, codec, k):
    """Bytes of one step on two nodes."""
    traffic = Traffic()
    nodes = Nodes(group, size // 2, None, traffic)
    summed = nodes.sum_inside(torch.ones(N))
    if nodes.between is not None:
        ctx = ExchangeContext(tensor="t", step=0, seed=0, comm=nodes.between)
        collective.exchange(selection(rank, k, 1, 0), codec, ctx)
    nodes.hand_out(summed)
    nodes.close()
    return traffic.sent


@small_messages
def calibrated(group, rank, size, folder):
    """Four calibrations: measured, found again, with one rank's file gone, and refreshed.

    Time is counted in calls and starts elsewhere on each rank: fast, and never the same twice.
    """
    comm, moments = GroupCommunicator(group), itertools.count(rank * 10**6)
    cost = itertools.count(1)
    state = [0.0]

    def clock():
        state[0] += 1e-4 * (next(cost) + next(moments) % 7)
        return state[0]

    os.environ["XDG_CACHE_HOME"] = f"{folder}/{rank}"
    results = []
    for turn in range(4):
        if turn == 2 and rank == 1:
            for file in Path(folder, "1", "thinwire").iterdir():
                file.unlink()
        calibration = calibrate(
            comm, [recipe("topk")], torch.device("cpu"), refresh=turn == 3, clock=clock
        )
        results.append(calibration.to_dict())
    comm.close()
    return results


@small_messages
def calibrated_in_nodes(group, rank, size, folder):
    """The network of two nodes."""
    os.environ["XDG_CACHE_HOME"] = f"{folder}/{rank}"
    comm, nodes = GroupCommunicator(group), Nodes(group, 2, None, Traffic())
    calibration = calibrate(comm, [], torch.device("cpu"), nodes=nodes)
    nodes.close()
    comm.close()
    return calibration.network.to_dict()
