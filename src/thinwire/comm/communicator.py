"""One rank's end of a process group, and every trap of the backends in one place.

Collectives are written against `Communicator`; what Gloo, NCCL and CUDA tensors can and cannot
do is known here alone:

- Gloo gathers no uneven lists, so variable sizes travel as point-to-point messages. It takes a
  message that is shorter than the buffer it goes into, so a length travels with its payload.
- Gloo's own allgather goes round a ring: P - 1 times all ranks must have had their turn. Messages
  from each to each are as many, and all under way at once.
- Gloo cannot send CUDA memory, so small payloads are staged in pinned host memory.
- Sizes and flags travel over a Gloo group of their own, so that NCCL users pay no device
  synchronisation for them.

Bytes are counted as handed to the backend. For an allreduce that is the ring's share,
2·(P-1)/P of the tensor in each direction, which is what Gloo and NCCL send.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from thinwire.errors import DisagreementError, ExchangeError
from thinwire.rng import fingerprint

DEFAULT_TIMEOUT = timedelta(minutes=5)
EAGER = 1 << 20  # bytes that travel with their length, before the receiver knows it
_LENGTH = 8  # bytes of a length


@dataclass(slots=True)
class Traffic:
    """Bytes this rank sent and received so far."""

    sent: int = 0
    received: int = 0


@dataclass(slots=True)
class Transfer:
    """Messages under way. Their memory may be touched again after `wait`."""

    works: list[dist.Work]
    copies: list[tuple[Tensor, Tensor]]  # staged in host memory, and where it belongs
    held: list[Tensor]
    named: Callable[[], AbstractContextManager[None]]

    def when_done(self, call: Callable[[], None]) -> None:
        """Have a single work's end told, in the backend's thread; at once if there is none."""
        for work in self.works:
            work.get_future().add_done_callback(lambda _: call())
        if not self.works:
            call()

    def wait(self) -> None:
        """Return when all were sent and received, or raise `ExchangeError` at the timeout."""
        with self.named():
            for work in self.works:
                work.wait()
        for host, device in self.copies:
            device.copy_(host, non_blocking=True)
        self.works, self.held = [], []


class GroupCommunicator:
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
        self.traffic = traffic or Traffic()
        self._payload_group: dist.ProcessGroup | None = None
        self._meta_group: dist.ProcessGroup | None = None
        self.rank, self.size, self.backend = 0, 1, "none"
        if not dist.is_initialized():
            return
        members = range(dist.get_world_size(group)) if members is None else members
        self.rank, self.size = members.index(dist.get_rank(group)), len(members)
        self.backend = dist.get_backend(group)
        if self.size == 1:
            return
        everyone = dist.get_process_group_ranks(group)
        ranks = [everyone[member] for member in members]

        timeout = timeout or _timeout_of(group)
        with self._named("set-up"):
            self._meta_group = _own_group(ranks, self.rank, "gloo", timeout)
            self._payload_group = (
                self._meta_group
                if self.backend == "gloo"
                else _own_group(ranks, self.rank, self.backend, timeout)
            )

    def all_reduce(self, tensor: Tensor) -> Tensor:
        self.start_all_reduce(tensor).wait()
        return tensor

    def start_all_reduce(self, tensor: Tensor) -> Transfer:
        """An allreduce under way. Gloo works on several at once, in the order of their start."""
        named = partial(self._named, "allreduce")
        if self.size == 1 or tensor.numel() == 0:
            return Transfer([], [], [], named)
        with named():
            work = dist.all_reduce(tensor, group=self._payload_group, async_op=True)
        share = 2 * tensor.nbytes * (self.size - 1) // self.size
        self.traffic.sent += share
        self.traffic.received += share
        return Transfer([work], [], [tensor], named)

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Rank 0's tensor on every rank, in place."""
        if self.size == 1 or tensor.numel() == 0:
            return tensor
        with self._named("broadcast"):
            dist.broadcast(tensor, group=self._payload_group, group_src=0)
        # A tree in the backend: all but one receive it once, and all together send as often.
        self.traffic.sent += tensor.nbytes if self.rank == 0 else 0
        self.traffic.received += tensor.nbytes if self.rank else 0
        return tensor

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        if self.size == 1:
            return [tensor]
        wire, others = tensor.contiguous().view(torch.uint8), self._others()
        arrived = self.exchange_sized(dict.fromkeys(others, wire), others, tensor.device)
        parts = arrived | {self.rank: wire}
        return [parts[r].view(tensor.dtype) for r in range(self.size)]

    def all_gather_meta(self, numbers: list[int]) -> list[list[int]]:
        if self.size == 1:
            return [numbers]
        mine = torch.tensor(numbers, dtype=torch.int64)
        everyone = self._gather_equal(mine)
        self.traffic.sent += mine.nbytes * (self.size - 1)
        self.traffic.received += mine.nbytes * (self.size - 1)
        return [each.tolist() for each in everyone]

    def exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> None:
        self.start(outgoing, incoming).wait()

    def exchange_sized(
        self, outgoing: Mapping[int, Tensor], sources: Collection[int], device: torch.device
    ) -> dict[int, Tensor]:
        """Lengths go ahead, and with Gloo as much of the payloads as there is room for."""
        eager = EAGER if self.backend == "gloo" else 0  # NCCL's receivers must know the size
        framed = {id(t): _framed(t, eager) for t in outgoing.values()}  # one may go to many
        beginnings = {r: framed[id(t)] for r, t in outgoing.items()}
        room = torch.empty(len(sources), _LENGTH + eager, dtype=torch.uint8)
        arrived = dict(zip(sources, room, strict=True))
        self._post(beginnings, arrived, self._meta_group).wait()

        incoming, rest = {}, {}
        for r, beginning in arrived.items():
            length, payload = int(beginning[:_LENGTH].view(torch.int64)), beginning[_LENGTH:]
            if length <= eager:
                incoming[r] = payload[:length].to(device)
            else:
                incoming[r] = torch.empty(length, dtype=torch.uint8, device=device)
                incoming[r][:eager] = payload
                rest[r] = incoming[r][eager:]
        self.exchange({r: t[eager:] for r, t in outgoing.items()}, rest)
        self.traffic.sent += sum(t.nbytes for t in beginnings.values())
        self.traffic.received += sum(_LENGTH + min(t.nbytes, eager) for t in incoming.values())
        return incoming

    def start(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> "Transfer":
        self.traffic.sent += sum(t.nbytes for t in outgoing.values())
        self.traffic.received += sum(t.nbytes for t in incoming.values())
        return self._post(outgoing, incoming, self._payload_group)

    def _post(
        self,
        outgoing: Mapping[int, Tensor],
        incoming: Mapping[int, Tensor],
        group: dist.ProcessGroup | None,
        phase: str = "exchange",
    ) -> "Transfer":
        """Hand everything to the backend. Empty tensors are not sent: both sides know the sizes."""
        buffers = {r: self._stage(t) for r, t in self._rotated(incoming) if t.numel()}
        operations = [
            dist.P2POp(dist.irecv, b, group=group, group_peer=r) for r, b in buffers.items()
        ]
        staged: dict[int, Tensor] = {}  # the same tensor may go to many: stage it once
        for r, tensor in self._rotated(outgoing):
            if tensor.numel():
                if id(tensor) not in staged:
                    staged[id(tensor)] = self._stage(tensor, filled=True)
                payload = staged[id(tensor)]
                operations.append(dist.P2POp(dist.isend, payload, group=group, group_peer=r))
        with self._named(phase):
            works = dist.batch_isend_irecv(operations) if operations else []
        copies = [(b, incoming[r]) for r, b in buffers.items() if b is not incoming[r]]
        return Transfer(works, copies, list(staged.values()), partial(self._named, phase))

    def agree(self, what: str, text: str, flag: bool = False) -> list[int]:
        """The ranks that raised the flag, if all came with the same text.

        If not, every rank raises `DisagreementError`; nothing else has been sent yet.
        """
        replies = self.all_gather_meta([fingerprint(text), int(flag)])
        if len({name for name, _ in replies}) > 1:
            payload = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
            texts = [bytes(t.tolist()).decode() for t in self._gather_host(payload)]
            lines = "\n".join(f"  rank {r}: {t}" for r, t in enumerate(texts))
            raise DisagreementError(f"ranks disagree on {what}:\n{lines}")
        return [rank for rank, (_, raised) in enumerate(replies) if raised]

    def close(self) -> None:
        """Let go of the groups. Nothing may be in flight."""
        for group in {self._payload_group, self._meta_group} - {None}:
            dist.destroy_process_group(group)
        self._payload_group = self._meta_group = None

    def _gather_host(self, tensor: Tensor) -> list[Tensor]:
        """Texts for error messages: rare, so padded to one length."""
        lengths = [n for (n,) in self.all_gather_meta([tensor.numel()])]
        padded = torch.zeros(max(lengths), dtype=tensor.dtype)
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

    def _stage(self, tensor: Tensor, filled: bool = False) -> Tensor:
        """Pinned host memory in place of CUDA memory, where Gloo is the backend."""
        if self.backend != "gloo" or not tensor.is_cuda:
            return tensor
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        if filled:
            host.copy_(tensor)  # blocking: Gloo reads the bytes at once
        return host

    def _rotated(self, peers: Mapping[int, Tensor]) -> list[tuple[int, Tensor]]:
        """Each rank starts with its right neighbour, so that no receiver is everyone's first."""
        return sorted(peers.items(), key=lambda item: (item[0] - self.rank) % self.size)

    @contextmanager
    def _named(self, phase: str) -> Iterator[None]:
        """A backend's RuntimeError says little; add who waited for what."""
        try:
            yield
        except RuntimeError as error:
            raise ExchangeError(
                f"rank {self.rank} of {self.size}: {phase} over {self.backend} broke off "
                f"(a peer died, or did not answer within the group's timeout): {error}"
            ) from error


def _framed(payload: Tensor, eager: int) -> Tensor:
    """The length of the payload and its first bytes, on the host."""
    length = torch.tensor([payload.numel()]).view(torch.uint8)
    return torch.cat((length, payload[:eager].cpu()))


def _own_group(ranks: list[int], rank: int, backend: str, timeout: timedelta) -> dist.ProcessGroup:
    """A new group that only its members make, under a name that none before it had.

    `new_group` would take the name from the ranks and the number of groups there are: ranks that
    know different numbers of groups then wait for each other for ever, and after a destroy a name
    comes again and finds stale addresses. Here every member counts in the store, so the numbers
    agree as long as the members' calls do.
    """
    store = c10d._get_default_store()
    members = "-".join(map(str, ranks))
    serial = store.add(f"thinwire/{members}/{backend}/{rank}", 1)
    name: Any = f"thinwire/{members}/{backend}/{serial}"
    group: dist.ProcessGroup
    group, _ = c10d._new_process_group_helper(
        len(ranks), rank, ranks, c10d.Backend(backend), store, name, timeout=timeout
    )
    c10d._world.pg_group_ranks[group] = {member: i for i, member in enumerate(ranks)}
    return group


def _timeout_of(group: dist.ProcessGroup | None) -> timedelta:
    """How long the user's own group waits for a peer. PyTorch shows it only on the backend."""
    group = group or dist.group.WORLD
    assert group is not None
    for device in ("cuda", "cpu"):
        try:
            timeout: timedelta = group._get_backend(torch.device(device)).options._timeout
            return timeout
        except (RuntimeError, AttributeError):
            continue
    return DEFAULT_TIMEOUT
