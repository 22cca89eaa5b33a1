"""What the ranks of the collective tests do. Runs in the workers: imports stay few."""

import dataclasses
import os
from datetime import timedelta
from unittest.mock import patch

import torch
import torch.distributed as dist

from thinwire.collective import Dense
from thinwire.comm import GroupCommunicator
from thinwire.types import ExchangeContext, Reduced, Sparse

SHORT = timedelta(seconds=3)


def context(comm, step=0):
    return ExchangeContext(tensor="w", step=step, seed=7, comm=comm)


def gather(group, rank, size, lengths, dtype):
    """All ranks' tensors of uneven lengths: `rank` repeated, and the bytes it took."""
    comm = GroupCommunicator(group)
    before = comm.traffic.sent, comm.traffic.received
    parts = comm.all_gather(torch.full((lengths[rank],), rank, dtype=dtype))
    traffic = comm.traffic.sent - before[0], comm.traffic.received - before[1]
    return [part.tolist() for part in parts], traffic


def sized(group, rank, size, lengths, eager):
    """Rank r sends lengths[r] + q bytes to rank q, of which `eager` go with their number."""
    comm = GroupCommunicator(group)
    others = [r for r in range(size) if r != rank]
    outgoing = {
        r: (torch.arange(lengths[rank] + r) + rank).remainder_(251).to(torch.uint8) for r in others
    }
    with patch("thinwire.comm.messages.EAGER", eager):
        incoming = comm.exchange_sized(outgoing, others, torch.device("cpu"))
    return {r: t.tolist() for r, t in incoming.items()}, comm.traffic.sent, comm.traffic.received


def ring(group, rank, size, length):
    """Each rank sends to its right neighbour only."""
    comm = GroupCommunicator(group)
    incoming = torch.full((length,), -1.0)
    comm.exchange(
        {(rank + 1) % size: torch.full((length,), float(rank))}, {(rank - 1) % size: incoming}
    )
    return incoming.tolist(), comm.traffic.sent, comm.traffic.received


def everyone_to_everyone(group, rank, size):
    """Rank r sends r + q elements to rank q."""
    comm = GroupCommunicator(group)
    others = [r for r in range(size) if r != rank]
    outgoing = {r: torch.full((rank + r,), 10.0 * rank + r) for r in others}
    incoming = {r: torch.empty(rank + r) for r in others}
    comm.exchange(outgoing, incoming)
    return {r: t.tolist() for r, t in incoming.items()}


def meta(group, rank, size):
    return GroupCommunicator(group).all_gather_meta([rank, rank * rank, -1])


def add(group, rank, size, values, dtype):
    comm = GroupCommunicator(group)
    x = torch.tensor([v * (rank + 1) for v in values], dtype=dtype)
    out = comm.all_reduce(x)
    dist.barrier(group)  # of nothing nothing travels: who is done may go while others still connect
    return out.tolist(), out is x, comm.traffic.sent


def agree(group, rank, size, texts, flags=()):
    return GroupCommunicator(group).agree("the colour", texts[rank], rank in flags)


def dense(group, rank, size, wire, values, dtype):
    """One dense exchange of each rank's own values: total, delivered and bytes sent."""
    comm = GroupCommunicator(group)
    x = torch.tensor(values[rank], dtype=dtype)
    reduced = Dense(wire).exchange(x, None, context(comm))
    return dense_of(reduced.total).tolist(), dense_of(reduced.delivered).tolist(), comm.traffic.sent


def dense_of_sparse(group, rank, size):
    comm = GroupCommunicator(group)
    s = Sparse(torch.tensor([rank]), torch.tensor([rank + 1.0]), size)
    reduced: Reduced = Dense().exchange(s, None, context(comm))
    return dense_of(reduced.total).tolist(), dense_of(reduced.delivered).tolist()


def allgather(group, rank, size, selections, numel, batched=True, cleared=False):
    """An allgather of each rank's own (indices, values) through raw codecs."""
    from thinwire.codec import Pair
    from thinwire.collective import AllGather

    comm = GroupCommunicator(group)
    indices, values = selections[rank]
    s = Sparse(torch.tensor(indices, dtype=torch.int64), torch.tensor(values), numel)
    ctx = context(comm)
    if cleared:
        ctx = dataclasses.replace(ctx, out=torch.zeros(numel), cleared=True)
    reduced = AllGather(batched).exchange(s, Pair(), ctx)
    support = None if reduced.support is None else sorted(set(reduced.support.tolist()))
    return dense_of(reduced.total).tolist(), dense_of(reduced.delivered).tolist(), support


def dense_of(selection):
    return selection.to_dense() if isinstance(selection, Sparse) else selection


def reopen(group, rank, size, times):
    """Communicators made and closed one after the other over the same ranks."""
    seen = []
    for turn in range(times):
        comm = GroupCommunicator(group, SHORT)
        seen.append(comm.all_gather_meta([rank + turn]))
        dist.barrier(group)  # nobody closes while others still read
        comm.close()
    return seen


def after_uneven_groups(group, rank, size):
    """Ranks that belong to different numbers of groups, as in tensor or expert parallelism."""
    for members in ([0], [0, 1]):
        dist.new_group(members)
    return GroupCommunicator(group, SHORT).all_gather_meta([rank])


def in_two_halves(group, rank, size):
    """Two disjoint groups side by side, each with a communicator of its own."""
    half = size // 2
    groups = [dist.new_group(range(half)), dist.new_group(range(half, size))]
    comm = GroupCommunicator(groups[rank // half], SHORT)
    return comm.rank, comm.size, comm.all_gather_meta([rank])


def loses_a_peer(group, rank, size, operation):
    """Rank 1 is gone at the second exchange."""
    comm = GroupCommunicator(group, SHORT)
    operate(comm, operation)
    if rank == 1:
        os._exit(7)
    operate(comm, operation)


def waits_in_vain(group, rank, size, operation):
    """Rank 1 stays, but does not take part until the others gave up."""
    comm = GroupCommunicator(group, SHORT)
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait([f"rank {r} gave up" for r in range(size) if r != rank])
        return
    try:
        operate(comm, operation)
    finally:
        store.set(f"rank {rank} gave up", "")


def operate(comm, operation):
    if operation == "allreduce":
        comm.all_reduce(torch.ones(1000))
    elif operation == "handshake":
        comm.all_gather_meta([1])
    else:
        neighbours = {(comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size}
        comm.exchange(
            {r: torch.ones(1000) for r in neighbours}, {r: torch.empty(1000) for r in neighbours}
        )
