"""What every collective must keep, tried on many selections; and what the ranks do for it.

One run of the cluster takes all cases of one collective: `Seen` is what a rank saw of each.
"""

import hashlib
import threading
from collections import defaultdict
from dataclasses import dataclass
from queue import SimpleQueue

import torch
from torch import Tensor

import thinwire as tw
from thinwire.codec import Pair
from thinwire.codec.value import QsgdValue
from thinwire.codec.value.half import Bf16Value
from thinwire.comm import GroupCommunicator, Traffic
from thinwire.types import ExchangeContext, Sparse

RAW, BF16, QSGD = Pair(), Pair(value=Bf16Value()), Pair(value=QsgdValue())
CODECS = {"raw": RAW, "bf16": BF16, "qsgd": QSGD}
HEADER = 64 + 8 + 8  # a wire's header, at most 4 bytes of padding after each part, its length


@dataclass(frozen=True)
class Case:
    """What each rank selects. Small enough to send to a worker, which makes it there."""

    kind: str
    numel: int = 1000
    k: int = 30
    dtype: torch.dtype = torch.float32

    def selection(self, rank, size):
        draw = torch.Generator().manual_seed(1000 * size + rank)
        values = torch.randn(self.numel, generator=draw, dtype=self.dtype)
        numel, k = self.numel, min(self.k, self.numel)
        shared = torch.Generator().manual_seed(size)
        match self.kind:
            case "uniform":
                indices = torch.randperm(numel, generator=draw)[:k]
            case "uneven":  # rank 0 has nothing, others ever more
                indices = torch.randperm(numel, generator=draw)[: k * rank // size]
            case "skewed":  # all in the first eighth
                indices = torch.randperm(max(1, numel // 8), generator=draw)[:k]
            case "disjoint":
                indices = torch.randperm(numel, generator=shared)[rank::size][:k]
            case "identical":
                indices = torch.randperm(numel, generator=shared)[:k]
            case "one rank":
                indices = torch.arange(numel if rank == size - 1 else 0)
            case "nothing":
                indices = torch.arange(0)
            case "zeros":
                indices, values = torch.arange(k), values * 0
            case "tied":
                indices, values = torch.randperm(numel, generator=draw)[:k], values.sign()
            case "rows":
                rows = torch.randperm(numel // 4, generator=draw)[: k // 4]
                return Sparse(rows, values.view(-1, 4)[rows], numel, ordered=False)
            case "unordered":
                indices = torch.randperm(numel, generator=draw)[:k]
                return Sparse(indices, values[indices], numel, ordered=False)
            case "dense":
                return torch.where(torch.rand(numel, generator=draw) < 0.3, values, 0)
        indices = indices.sort().values
        return Sparse(indices, values[indices], numel)


SPREAD = tuple(Case(kind) for kind in ("uniform", "skewed", "disjoint", "identical"))
SPARSE = (
    *SPREAD,
    *(Case(kind) for kind in ("uneven", "one rank", "nothing", "zeros", "tied", "rows")),
    Case("unordered"),
    Case("uniform", dtype=torch.float64),
    Case("uniform", numel=1001, k=400),
    Case("uniform", numel=1, k=1),
    Case("uniform", numel=5, k=2),
    Case("nothing", numel=0),
)
DENSE = (Case("dense"), Case("dense", numel=7), Case("dense", numel=0))


@dataclass(frozen=True)
class Seen:
    """One exchange on one rank."""

    total: Tensor
    digest: str
    delivered: Tensor
    unique: bool  # and in order, where it says so
    sent: int
    received: int


def exchange(group, rank, size, collective, codec, cases):
    """Each case through the collective once."""
    return exchange_over(GroupCommunicator(group), collective, codec, cases)


def exchange_each(group, rank, size, trials):
    """The same for several collectives, codecs and cases."""
    comm = GroupCommunicator(group)
    return [exchange_over(comm, *trial) for trial in trials]


def exchange_over(comm, collective, codec, cases):
    seen = []
    for step, case in enumerate(cases):
        s = case.selection(comm.rank, comm.size)
        before = comm.traffic.sent, comm.traffic.received
        ctx = ExchangeContext(tensor="w", step=step, seed=7, comm=comm)
        reduced = collective.exchange(s, codec, ctx)
        total = dense_of(reduced.total)
        seen.append(
            Seen(
                total=total.clone(),
                digest=digest(total),
                delivered=dense_of(reduced.delivered).clone(),
                unique=all(is_sound(x) for x in (reduced.total, reduced.delivered)),
                sent=comm.traffic.sent - before[0],
                received=comm.traffic.received - before[1],
            )
        )
    return seen


def dense_of(selection):
    return selection.to_dense() if isinstance(selection, Sparse) else selection


def is_sound(selection):
    if not isinstance(selection, Sparse):
        return selection.dim() == 1
    steps = (
        selection.indices.sort().values.diff()
        if not selection.ordered
        else (selection.indices.diff())
    )
    return bool((steps > 0).all()) and selection.indices.dtype == torch.int64


def digest(tensor):
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def in_turn(cases, size):
    """All cases for the exact way; each of the two that round takes every other one.

    Which ones alternates with the number of ranks: over all of them each meets every case.
    """
    return cases, cases[size % 2 :: 2], cases[1 - size % 2 :: 2]


def check_codecs(cluster, size, collective, shares, lossless):
    """The laws under each codec on its share of the cases.

    `lossless` says that the collective itself prunes nothing.
    """
    trials = [(collective, *trial) for trial in zip(CODECS.values(), shares, strict=True)]
    seen = cluster.run(exchange_each, size, trials)
    for number, codec in enumerate(CODECS):
        by_rank = [results[number] for results in seen]
        assert_laws(shares[number], by_rank, lossless=lossless and codec == "raw")


def assert_laws(cases, by_rank, lossless, adding=torch.float32):
    """Replicas identical, Σ delivered = total; and the total is Σ selected where `lossless`."""
    size = len(by_rank)
    for number, case in enumerate(cases):
        seen = [results[number] for results in by_rank]
        assert len({one.digest for one in seen}) == 1, (case, "replicas differ")
        assert all(one.unique for one in seen), (case, "indices")
        chosen = [dense_of(case.selection(rank, size)).double() for rank in range(size)]
        delivered = [one.delivered.double() for one in seen]
        total = seen[0].total.double()
        assert total.numel() == case.numel
        moved = sum(x.abs() for x in (*chosen, *delivered)) + total.abs()
        if not moved.numel():
            continue
        allowed = (2 * size + 8) * torch.finfo(adding).eps * (moved + 1e-30)
        assert_within(sum(delivered) - total, allowed, (case, "Σ delivered"))
        if lossless:
            assert_within(sum(chosen) - total, allowed, (case, "Σ selected"))
            for mine, shared in zip(chosen, delivered, strict=True):
                assert torch.equal(mine, shared), (case, "a lossless share is the selection")


def assert_within(gap, allowed, what):
    assert bool((gap.abs() <= allowed).all()), (what, (gap.abs() / allowed).max().item())


# ---- steps through a whole pipeline


def check_conservation(cluster, size, pipelines, numel=500, tolerance=2e-5):
    """Law 1 for each pipeline over a few steps: Σ (inflow - outflow) = P·update; and law 2."""
    by_rank = cluster.run(train_each, size, pipelines, 3, numel)
    for number, pipeline in enumerate(pipelines):
        for steps in zip(*(results[number] for results in by_rank), strict=True):
            settled = sum(gone for gone, _, _ in steps)
            torch.testing.assert_close(
                size * steps[0][1], settled, atol=tolerance, rtol=tolerance, msg=repr(pipeline)
            )
            assert len({bits for _, _, bits in steps}) == 1, pipeline


def train_each(group, rank, size, pipelines, steps, numel):
    return [train(group, rank, pipeline, steps, numel) for pipeline in pipelines]


def train(group, rank, pipeline, steps, numel):
    """For each step what left this rank, and the update and its bits."""
    sync = tw.Synchronizer(pipeline, group)
    report, waiting = [], torch.zeros(numel, dtype=torch.float64)
    for step in range(steps):
        draw = torch.Generator().manual_seed(100 * step + rank)
        grad = torch.randn(numel, generator=draw) * torch.linspace(0.1, 3, numel)
        brought = waiting + grad.double()
        update = sync.average("w", grad)
        waiting = sync.state_dict()["tensors"]["w"]["feedback/residual"].double()
        report.append((brought - waiting, update.double(), digest(update)))
    return report


# ---- more ranks than a test can afford processes


class Threads:
    """A communicator for each of `size` threads: the same exchanges, through queues."""

    def __init__(self, size):
        self.size = size
        self.queues = defaultdict(SimpleQueue)
        self.lock = threading.Lock()

    def run(self, function, *args):
        """What function(comm, *args) returned, by rank."""
        results = [None] * self.size

        def work(rank):
            try:
                results[rank] = function(ThreadCommunicator(self, rank), *args)
            except BaseException as error:
                results[rank] = error
                raise

        threads = [threading.Thread(target=work, args=(r,), daemon=True) for r in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        return results

    def queue(self, source, target):
        with self.lock:
            return self.queues[source, target]


class ThreadCommunicator:
    def __init__(self, world, rank):
        self.world, self.rank, self.size = world, rank, world.size
        self.traffic = Traffic()

    def all_gather(self, tensor):
        others = [r for r in range(self.size) if r != self.rank]
        parts = self.exchange_sized(dict.fromkeys(others, tensor), others, tensor.device)
        return [parts.get(r, tensor) for r in range(self.size)]

    def all_reduce(self, tensor):
        parts = self.all_gather(tensor.clone())
        tensor.zero_()
        for part in parts:
            tensor += part
        return tensor

    def exchange_sized(self, outgoing, sources, device):
        for target, tensor in outgoing.items():
            self.traffic.sent += tensor.nbytes
            self.world.queue(self.rank, target).put(tensor.clone())
        arrived = {r: self.world.queue(r, self.rank).get(timeout=30) for r in sources}
        self.traffic.received += sum(tensor.nbytes for tensor in arrived.values())
        return arrived
