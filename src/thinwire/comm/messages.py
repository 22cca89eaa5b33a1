"""Messages: how a payload is split, what an exchange comes to in bytes, and those under way.

The cost models (`thinwire.cost`) take the same decisions from here as the communicator does.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from thinwire.errors import RecipeError, WireFormatError

EAGER = 1 << 20  # bytes that travel with their length, before the receiver knows it
LENGTH = 8  # bytes of a length
MOST_BYTES = 1 << 36  # of a message: 64 GiB


def eager_bytes(backend: str) -> int:
    """How many bytes of a payload may go with its length. NCCL's receivers must know the size."""
    return EAGER if backend == "gloo" else 0


def rounds(size: float, backend: str = "gloo") -> int:
    """How many messages, one after the other, take a payload to a receiver that awaits any size."""
    return 1 if size <= eager_bytes(backend) else 2


def ring_bytes(size: float, ranks: int) -> int:
    """Bytes that each rank sends, and receives, in a ring allreduce of `size` bytes."""
    return int(2 * size * (ranks - 1) // ranks)


def announced(beginning: Tensor, source: int) -> int:
    """The length that a message begins with, before anything is made for it."""
    return possible_length(int(beginning[:LENGTH].view(torch.int64)), source)


def possible_length(length: int, source: int) -> int:
    """What a rank says to be the length of its message, if there is room for such."""
    if not 0 <= length <= MOST_BYTES:
        raise WireFormatError(
            f"a message of rank {source} says that it has {length} bytes: at most {MOST_BYTES:,} "
            "are taken"
        )
    return length


def framed(payload: Tensor, eager: int) -> Tensor:
    """The length of the payload and its first bytes, on the host."""
    length = torch.tensor([payload.numel()], device="cpu").view(torch.uint8)
    return torch.cat((length, payload[:eager].cpu()))


@dataclass(slots=True)
class Traffic:
    """Bytes this rank sent and received so far."""

    sent: int = 0
    received: int = 0

    def count(self, sent: int, received: int) -> None:
        """Add what one exchange sent and received."""
        self.sent += sent
        self.received += received

    def now(self) -> "Traffic":
        """A copy, to compare with later."""
        return Traffic(self.sent, self.received)

    def since(self, before: "Traffic") -> "Traffic":
        """What was added to an earlier copy."""
        return Traffic(self.sent - before.sent, self.received - before.received)


def for_backend(tensor: Tensor, backend: str, filled: bool = False) -> Tensor:
    """Pinned host memory in place of CUDA memory, where Gloo is the backend."""
    if backend != "gloo" or not tensor.is_cuda:
        return tensor
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    if filled:
        host.copy_(tensor)  # blocking: Gloo reads the bytes at once
    return host


@contextmanager
def in_bytes(tensor: Tensor) -> Iterator[Tensor]:
    """The tensor as bytes, one behind the other, whatever its dtype and strides; what they are at
    the end it has then. Elements that share memory are there once.
    """
    if tensor.layout is not torch.strided:
        raise RecipeError(
            f"a tensor of layout {tensor.layout} cannot be handed out to the other ranks "
            f"({tuple(tensor.shape)}, {tensor.dtype}): let the model have it dense"
        )
    memory = tensor.detach()[tuple(slice(None if step else 1) for step in tensor.stride())]
    row = memory.contiguous()  # of one element the stride may be 0 still
    wire = row.as_strided((row.numel(),), (1,)).view(torch.uint8)
    yield wire
    if wire.data_ptr() != memory.data_ptr():
        memory.copy_(wire.view(tensor.dtype).view(memory.shape))


@dataclass(slots=True)
class Waiting:
    """For whom a rank waits; None: for any of the others."""

    peer: int | None = None


def begin(
    operations: list[dist.P2POp], waiting: Waiting
) -> tuple[list[dist.Work], list[int | None]]:
    """Hand messages to the backend: what is under way, and whose each is, if it is anyone's."""
    if operations and dist.get_backend(operations[0].group) != "gloo":
        works = dist.batch_isend_irecv(operations)
        return works, [None] * len(works)  # they are one for the device
    started: list[dist.Work] = []
    for o in operations:
        waiting.peer = o.group_peer
        key = "group_src" if o.op is dist.irecv else "group_dst"
        started.append(o.op(o.tensor, group=o.group, **{key: o.group_peer}))
    return started, [o.group_peer for o in operations]


@dataclass(slots=True)
class Transfer:
    """Messages under way. Their memory may be touched again after `wait`."""

    works: list[dist.Work]
    peers: list[int | None]  # of each work, where it has one
    copies: list[tuple[Tensor, Tensor]]  # staged in host memory, and where it belongs
    held: list[Tensor]
    named: Callable[[], AbstractContextManager["Waiting"]]

    def wait(self) -> None:
        """Return when all were sent and received, or raise `ExchangeError` at the timeout."""
        with self.named() as waiting:
            for work, waiting.peer in zip(self.works, self.peers, strict=True):
                work.wait()
        for host, device in self.copies:
            device.copy_(host, non_blocking=True)
        self.works, self.held = [], []

    def settle(self) -> None:
        """Return when nothing is under way any more, whatever became of it."""
        for work in self.works:
            with suppress(RuntimeError):
                work.wait()
        self.works, self.held = [], []
