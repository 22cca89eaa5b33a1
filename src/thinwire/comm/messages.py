"""Messages: how a payload is split, what an exchange comes to in bytes, and those under way.

The cost models (`thinwire.cost`) take the same decisions from here as the communicator does.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

EAGER = 1 << 20  # bytes that travel with their length, before the receiver knows it
LENGTH = 8  # bytes of a length


def eager_bytes(backend: str) -> int:
    """How many bytes of a payload may go with its length. NCCL's receivers must know the size."""
    return EAGER if backend == "gloo" else 0


def rounds(size: float, backend: str = "gloo") -> int:
    """How many messages, one after the other, take a payload to a receiver that awaits any size."""
    return 1 if size <= eager_bytes(backend) else 2


def ring_bytes(size: float, ranks: int) -> int:
    """Bytes that each rank sends, and receives, in a ring allreduce of `size` bytes."""
    return int(2 * size * (ranks - 1) // ranks)


def framed(payload: Tensor, eager: int) -> Tensor:
    """The length of the payload and its first bytes, on the host."""
    length = torch.tensor([payload.numel()]).view(torch.uint8)
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


@dataclass(slots=True)
class Transfer:
    """Messages under way. Their memory may be touched again after `wait`."""

    works: list[dist.Work]
    copies: list[tuple[Tensor, Tensor]]  # staged in host memory, and where it belongs
    held: list[Tensor]
    named: Callable[[], AbstractContextManager[None]]

    def when_done(self, call: Callable[[], None]) -> None:
        """Call when a single work ends, in the backend's thread; at once if there is none."""
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
