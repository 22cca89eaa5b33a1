"""One rank's end of a process group, and every trap of the backends in one place.

Collectives are written against `Communicator`; what Gloo, NCCL and CUDA tensors can and cannot
do is known here alone:

- Gloo gathers no uneven lists, so variable sizes travel as point-to-point messages. It takes a
  message that is shorter than the buffer it goes into, so a length travels with its payload.
- Gloo's own allgather goes round a ring: P - 1 times all ranks must have had their turn. Messages
  from each to each are as many, and all under way at once.
- Gloo cannot send CUDA memory, so small payloads are staged in pinned host memory.
- Neither knows all dtypes, and Gloo does not see gaps between elements: broadcasts are of bytes.
- Sizes and flags travel over a Gloo group of their own, so that NCCL users pay no device
  synchronisation for them: in host memory, whatever PyTorch's default device is.

Bytes are counted as handed to the backend. For an allreduce that is the ring's share,
2·(P-1)/P of the tensor in each direction, which is what Gloo and NCCL send.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from thinwire.comm.groups import group_at, hang_up, let_go, own_group, timeout_of, when_dropped
from thinwire.comm.lanes import Lanes
from thinwire.comm.messages import (
    LENGTH,
    Traffic,
    Transfer,
    announced,
    begin,
    eager_bytes,
    for_backend,
    framed,
    in_bytes,
    possible_length,
    ring_bytes,
    rounds,
)
from thinwire.comm.waits import Waits
from thinwire.comm.watch import Watch
from thinwire.errors import DisagreementError
from thinwire.rng import fingerprint


class GroupCommunicator(Waits):
    """A `Communicator` over a process group of its own, made from the ranks of `group`.

    Its own, because DDP's group is busy with other messages at the same time; with P = 1, or
    without `torch.distributed`, there is no group and every exchange is the identity.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        timeout: timedelta | None = None,
        members: Sequence[int] | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        """`members`: the ranks of `group` that belong; all by default. Each of them must call."""
        super().__init__()
        self.traffic = traffic or Traffic()
        self._lanes: Lanes | None = None  # of a backend that cannot do both
        self._meta_group: dist.ProcessGroup | None = None
        self._let_go_was_done: Callable[[], object] = lambda: None
        self.first = 0  # of its ranks, by its number in the world: which of several such groups
        if not dist.is_initialized():
            return
        everyone = dist.get_process_group_ranks(group)
        members = range(dist.get_world_size(group)) if members is None else members
        self.first = everyone[members[0]]
        self.rank, self.size = members.index(dist.get_rank(group)), len(members)
        self.backend = dist.get_backend(group)
        if self.size == 1:
            return
        ranks = [everyone[member] for member in members]

        self.timeout = timeout or timeout_of(group)
        with self.named("set-up"):
            self._meta_group = own_group(ranks, self.rank, "gloo", self.timeout)
            if self.backend != "gloo":
                self._lanes = Lanes(
                    partial(own_group, ranks, self.rank, self.backend, self.timeout)
                )
        if self._lanes is None:  # NCCL's groups end with the process, or by `close`
            self._let_go_was_done = when_dropped(self, let_go, self._meta_group)
        else:
            self._watch = Watch(self.timeout.total_seconds(), self._lanes.abort)
            self._let_go_was_done = when_dropped(self, self._watch.dismiss)

    @classmethod
    def alone(cls) -> "GroupCommunicator":
        """One rank by itself, whatever groups it is in."""
        return cls(members=[dist.get_rank()]) if dist.is_initialized() else cls()

    @classmethod
    def at_store(
        cls, store: c10d.Store, name: str, rank: int, size: int, timeout: timedelta
    ) -> "GroupCommunicator":
        """Over Gloo, among those who come to a store with this name: no group need be there before.

        For ranks that come and go; no two groups may have the same name.
        """
        comm = cls.alone()
        comm.rank, comm.size, comm.backend, comm.timeout = rank, size, "gloo", timeout
        if size > 1:
            with comm.named("set-up"):
                group = group_at(store, name, rank, size, timeout)
            comm._meta_group = group
            comm._let_go_was_done = when_dropped(comm, let_go, group)
        return comm

    @property
    def _payload_group(self) -> dist.ProcessGroup | None:
        return self._meta_group if self._lanes is None else self._lanes.now

    def lane(self, number: int) -> AbstractContextManager[None]:
        """Exchange beside what other lanes have under way, where the backend queues exchanges."""
        return nullcontext() if self._lanes is None else self._lanes.lane(number)

    def all_reduce(self, tensor: Tensor) -> Tensor:
        self.start_all_reduce(tensor).wait()
        return tensor

    def start_all_reduce(self, tensor: Tensor) -> Transfer:
        """An allreduce under way. Gloo works on several at once, in the order of their start."""
        named = partial(self.named, "allreduce")
        if self.size == 1 or tensor.numel() == 0:
            return Transfer([], [], [], [], named)
        with named():
            work = dist.all_reduce(tensor, group=self._payload_group, async_op=True)
        self.watch_over([work])
        share = ring_bytes(tensor.nbytes, self.size)
        self.traffic.count(share, share)
        return Transfer([work], [None], [], [tensor], named)

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:
        if self.size == 1 or tensor.numel() == 0:
            return tensor
        group = self._payload_group if tensor.is_cuda else self._meta_group
        with self.named("broadcast"), in_bytes(tensor) as wire:
            dist.broadcast(wire, group=group, group_src=source)
        self.watch_queue(tensor.device)
        # A tree in the backend: all but one receive it once, and all together send as often.
        self.traffic.count(*((wire.nbytes, 0) if self.rank == source else (0, wire.nbytes)))
        return tensor

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        if self.size == 1:
            return [tensor]
        wire, others = tensor.contiguous().view(torch.uint8), self._others()
        arrived = self.exchange_sized(dict.fromkeys(others, wire), others, tensor.device)
        parts = arrived | {self.rank: wire}
        return [parts[r].view(tensor.dtype) for r in range(self.size)]

    def all_gather_equal(self, tensor: Tensor, out: Tensor | None = None) -> Tensor:
        if self.size == 1:
            return tensor[None]
        rows = tensor.new_empty(self.size, tensor.numel()) if out is None else out
        if self.backend == "gloo":
            rows[self.rank] = tensor
            others = self._others()
            self.exchange(dict.fromkeys(others, tensor), {r: rows[r] for r in others})
            return rows
        with self.named("allgather"):
            dist.all_gather_into_tensor(rows, tensor, group=self._payload_group)
        self.watch_queue(tensor.device)
        self.traffic.count(*[tensor.nbytes * (self.size - 1)] * 2)
        return rows

    def all_to_all_equal(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        if self.size == 1:
            return rows
        arrived = torch.empty_like(rows) if out is None else out
        if self.backend == "gloo":
            self.exchange(
                {r: rows[r] for r in self._others()}, {r: arrived[r] for r in self._others()}
            )
            arrived[self.rank] = rows[self.rank]
            return arrived
        with self.named("all-to-all"):
            dist.all_to_all_single(arrived, rows, group=self._payload_group)
        self.watch_queue(rows.device)
        self.traffic.count(*[rows[0].nbytes * (self.size - 1)] * 2)
        return arrived

    def all_gather_meta(self, numbers: list[int]) -> list[list[int]]:
        if self.size == 1:
            return [numbers]
        mine = torch.tensor(numbers, dtype=torch.int64, device="cpu")
        everyone = self._gather_equal(mine)
        self.traffic.count(mine.nbytes * (self.size - 1), mine.nbytes * (self.size - 1))
        return [each.tolist() for each in everyone]

    def exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> None:
        self.start(outgoing, incoming).wait()

    def exchange_sized(
        self, outgoing: Mapping[int, Tensor], sources: Collection[int], device: torch.device
    ) -> dict[int, Tensor]:
        """Lengths go ahead, and with Gloo as much of the payloads as there is room for."""
        eager = eager_bytes(self.backend)
        frames = {id(t): framed(t, eager) for t in outgoing.values()}  # one may go to many
        beginnings = {r: frames[id(t)] for r, t in outgoing.items()}
        room = torch.empty(len(sources), LENGTH + eager, dtype=torch.uint8, device="cpu")
        arrived = dict(zip(sources, room, strict=True))
        self._post(beginnings, arrived, self._meta_group).wait()

        incoming, rest = {}, {}
        for r, beginning in arrived.items():
            length, payload = announced(beginning, r), beginning[LENGTH:]
            if rounds(length, self.backend) == 1:
                incoming[r] = payload[:length].to(device)
            else:
                incoming[r] = torch.empty(length, dtype=torch.uint8, device=device)
                incoming[r][:eager] = payload
                rest[r] = incoming[r][eager:]
        self.exchange({r: t[eager:] for r, t in outgoing.items()}, rest)
        self.traffic.count(
            sum(t.nbytes for t in beginnings.values()),
            sum(LENGTH + min(t.nbytes, eager) for t in incoming.values()),
        )
        return incoming

    def start(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Transfer:
        self.traffic.count(
            sum(t.nbytes for t in outgoing.values()), sum(t.nbytes for t in incoming.values())
        )
        return self._post(outgoing, incoming, self._payload_group)

    def _post(
        self,
        outgoing: Mapping[int, Tensor],
        incoming: Mapping[int, Tensor],
        group: dist.ProcessGroup | None,
        phase: str = "exchange",
    ) -> Transfer:
        """Hand everything to the backend. Empty tensors are not sent: both sides know the sizes."""
        buffers = {r: for_backend(t, self.backend) for r, t in self._rotated(incoming) if t.numel()}
        operations = [
            dist.P2POp(dist.irecv, b, group=group, group_peer=r) for r, b in buffers.items()
        ]
        staged: dict[int, Tensor] = {}  # the same tensor may go to many: stage it once
        for r, tensor in self._rotated(outgoing):
            if tensor.numel():
                if id(tensor) not in staged:
                    staged[id(tensor)] = for_backend(tensor, self.backend, filled=True)
                payload = staged[id(tensor)]
                operations.append(dist.P2POp(dist.isend, payload, group=group, group_peer=r))
        with self.named(phase) as waiting:
            works, peers = begin(operations, waiting)
        if group is not self._meta_group:
            self.watch_over(works)
        copies = [(b, incoming[r]) for r, b in buffers.items() if b is not incoming[r]]
        return Transfer(works, peers, copies, list(staged.values()), partial(self.named, phase))

    def agree(self, what: str, text: str, flag: bool = False) -> list[int]:
        """The ranks that raised the flag, if all came with the same text.

        If not, every rank raises `DisagreementError`; nothing else has been sent yet.
        """
        replies = self.all_gather_meta([fingerprint(text), int(flag)])
        if len({name for name, _ in replies}) > 1:
            payload = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
            texts = [bytes(t.tolist()).decode(errors="replace") for t in self.gather(payload)]
            lines = "\n".join(f"  rank {r}: {t}" for r, t in enumerate(texts))
            raise DisagreementError(f"ranks disagree on {what}:\n{lines}")
        return [rank for rank, (_, raised) in enumerate(replies) if raised]

    def abort(self) -> None:
        """Give up what is under way on the devices; nothing can be exchanged any more."""
        if self._lanes is not None:
            self._lanes.abort()

    def give_up(self, why: str) -> None:
        """As said there; and those who wait for this rank hear of it now, not at their timeout."""
        first = self._given_up is None and not self.lost
        super().give_up(why)
        if first and self._meta_group is not None:
            self.abort()
            hang_up(self._meta_group, self._others())

    def close(self) -> None:
        """Let go of the groups, on all ranks in the same order. Nothing may be in flight."""
        self._given_up = self._given_up or "it was closed"
        if self._watch is not None:
            self._watch.close()
        if self._lanes is not None:
            self._lanes.let_go()
        if self._meta_group is not None:
            let_go(self._meta_group)
        self._let_go_was_done()  # what would do so has the groups, and these their threads
        self._lanes = self._meta_group = None

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Every rank's 1-D tensor, on the host: texts and states. Rare, so padded to one length."""
        everyones = self.all_gather_meta([tensor.numel()])
        lengths = [possible_length(n, rank) for rank, (n,) in enumerate(everyones)]
        padded = torch.zeros(max(lengths), dtype=tensor.dtype, device="cpu")
        padded[: tensor.numel()] = tensor
        return [t[:n] for t, n in zip(self._gather_equal(padded), lengths, strict=True)]

    def _gather_equal(self, tensor: Tensor) -> list[Tensor]:
        """Every rank's small host tensor, all of one length."""
        everyone = {r: torch.empty_like(tensor) for r in self._others()}
        mine = dict.fromkeys(everyone, tensor)
        self._post(mine, everyone, self._meta_group, "handshake").wait()
        return [everyone.get(r, tensor) for r in range(self.size)]

    def _others(self) -> list[int]:
        return [r for r in range(self.size) if r != self.rank]

    def _rotated(self, peers: Mapping[int, Tensor]) -> list[tuple[int, Tensor]]:
        """Each rank starts with its right neighbour, so that no receiver is everyone's first."""
        return sorted(peers.items(), key=lambda item: (item[0] - self.rank) % self.size)
