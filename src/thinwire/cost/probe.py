"""α and β of a process group, measured: the same numbers on every rank.

Every rank makes the same exchanges in the same order; what decides how many there are is agreed
first. Every wait is bounded by the group's own timeout, all of them together by `seconds`.
"""

import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from thinwire.comm import GroupCommunicator, Nodes
from thinwire.cost.network import Link, Network
from thinwire.types import Communicator

REPEATS = 7
SMALL, FIRST, LARGEST = 8, 1 << 16, 1 << 25  # bytes
LONG_ENOUGH = 0.04  # seconds of an exchange that tells β: far more than a link's burst
SECONDS, SHARE = 4.0, 30  # for each level of the network, of which an exchange takes a 30th

Clock = Callable[[], float]


def measure_network(
    comm: GroupCommunicator,
    device: torch.device,
    nodes: Nodes | None = None,
    clock: Clock = time.perf_counter,
    seconds: float = SECONDS,
) -> Network:
    """What messages from `device` cost; with nodes, between their leaders and inside each.

    `seconds` is about what each of these levels may take.
    """
    if nodes is None:
        return _level(comm, device, clock, seconds)
    inside = _level(nodes.inside, device, clock, seconds)
    between = inside if nodes.between is None else _level(nodes.between, device, clock, seconds)
    # Leaders tell their nodes; then all take the median over the nodes.
    leaders = torch.tensor(_numbers(between), dtype=torch.float64, device=device)
    same = agreed(comm, [*nodes.hand_out(leaders).tolist(), *_numbers(inside)])
    link, ring, within = Link(*same[:3]), Link(*same[3:5]), Link(*same[6:9])
    spread = max(same[5], same[11])
    return Network(link, ring, within, nodes.inside.size, spread, comm.backend)


def agreed(comm: Communicator, numbers: Sequence[float]) -> list[float]:
    """The median over the ranks of each number, bit for bit the same on all of them."""
    bits = [struct.unpack("<q", struct.pack("<d", number))[0] for number in numbers]
    columns = zip(*comm.all_gather_meta(bits), strict=True)
    return [median(struct.unpack("<d", struct.pack("<q", b))[0] for b in c) for c in columns]


def _level(comm: GroupCommunicator, device: torch.device, clock: Clock, seconds: float) -> Network:
    """One group: the backend's allreduce, and messages.

    NCCL connects ranks anew for messages, which takes longer than all the rest: where there is
    little time they are taken to be like the steps of its ring.
    """
    if comm.size == 1:
        return Network(Link(0.0, 0.0, 0.0), spread=0.0, backend=comm.backend)
    trial = Trial(comm, device)
    rounds, share = 2 * (comm.size - 1), 2 * (comm.size - 1) / comm.size
    start, _ = _timed(comm, lambda: trial.reduce(SMALL), clock)
    size, long, wobble = _grown(comm, trial.reduce, clock, seconds)
    ring = Link(start / rounds, max(0.0, long - start) / (share * size))
    spread = min(0.5, max(0.05, wobble))
    if comm.backend == "nccl" and seconds < SECONDS:
        return Network(ring, ring, spread=spread, backend=comm.backend)

    alpha, _ = _timed(comm, lambda: trial.ring(SMALL), clock)
    together, _ = _timed(comm, trial.to_all, clock)
    overhead = min(alpha, max(0.0, together - alpha) / max(1, comm.size - 2))
    size, long, noise = _grown(comm, trial.ring, clock, seconds)
    link = Link(alpha, max(0.0, long - alpha) / size, overhead if comm.size > 2 else alpha)
    return Network(link, ring, spread=min(0.5, max(spread, noise)), backend=comm.backend)


@dataclass(frozen=True, slots=True)
class Trial:
    """The exchanges that are timed. Each returns when its bytes are there, on a GPU too."""

    comm: Communicator
    device: torch.device

    def ring(self, size: int) -> None:
        """One message to the right neighbour while one comes from the left."""
        comm = self.comm
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        comm.exchange({right: self._bytes(size)}, {left: self._bytes(size)})
        self._finish()

    def to_all(self) -> None:
        """A small message to each peer."""
        others = [r for r in range(self.comm.size) if r != self.comm.rank]
        message = self._bytes(SMALL)
        self.comm.exchange(dict.fromkeys(others, message), {r: self._bytes(SMALL) for r in others})
        self._finish()

    def reduce(self, size: int) -> None:
        """The backend's allreduce, as dense recipes use it."""
        self.comm.all_reduce(torch.zeros(size // 4, device=self.device))
        self._finish()

    def _bytes(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.uint8, device=self.device)

    def _finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _grown(
    comm: Communicator, exchange: Callable[[int], None], clock: Clock, seconds: float
) -> tuple[int, float, float]:
    """Bytes, seconds and spread of an exchange that takes long enough to show its bytes."""
    long_enough = min(LONG_ENOUGH, seconds / SHARE)
    size, began = FIRST, clock()
    while True:
        (once,) = agreed(comm, [_once(lambda: exchange(size), clock)])  # noqa: B023
        (spent,) = agreed(comm, [clock() - began])
        if once >= long_enough or size >= LARGEST or spent + 4 * once * 6 > seconds / 2:
            break
        size *= 4
    long, spread = _timed(comm, lambda: exchange(size), clock, repeats=5)
    return size, long, spread


def _timed(
    comm: Communicator, exchange: Callable[[], None], clock: Clock, repeats: int = REPEATS
) -> tuple[float, float]:
    """The median over repeats and ranks, and the spread of the repeats as a share of it."""
    exchange()
    taken = [_once(exchange, clock) for _ in range(repeats)]
    middle = median(taken)
    inner = sorted(taken)[len(taken) // 4 : -(len(taken) // 4) or None]
    seconds, spread = agreed(comm, [middle, (inner[-1] - inner[0]) / max(middle, 1e-9)])
    return seconds, spread


def _once(exchange: Callable[[], None], clock: Clock) -> float:
    begin = clock()
    exchange()
    return clock() - begin


def _numbers(network: Network) -> list[float]:
    """Of the link three, of the ring two, and the spread."""
    link, ring = network.link, network.ring or network.link
    return [link.alpha, link.beta, link.overhead or 0.0, ring.alpha, ring.beta, network.spread]
