"""Two streams beside the backward pass: what goes out is made on one, what comes is used on the
other.

So a unit's selection waits for no other unit's exchange. Where a peer is late, all that we have for
it is ready when it comes.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from thinwire.engine.thread import HIGHEST, OrderedWorker


class Lanes:
    """The worker's stream, outbound, and one inbound, both before the backward pass."""

    def __init__(self, worker: OrderedWorker) -> None:
        self._worker = worker
        self._inbound: dict[torch.device, torch.cuda.Stream] = {}

    @contextmanager
    def outbound(self, device: torch.device) -> Iterator[None]:
        """Queue behind what the caller's stream has; from the first arrival on, inbound."""
        stream = self._worker.stream_of(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        if device not in self._inbound:
            self._inbound[device] = torch.cuda.Stream(device, HIGHEST)
        with torch.cuda.stream(stream):
            yield

    def arrive(self, work: dist.Work, *tensors: Tensor) -> None:
        """Go on with an exchange's result when it is there: a unit in the inbound lane.

        The `tensors` that the exchange reads and writes are used there too; nothing else may be
        that was made before, and is not kept for longer than the step.
        """
        device = tensors[0].device
        if torch.cuda.current_stream(device) == self._worker.stream_of(device):
            inbound = self._inbound[device]
            for tensor in tensors:
                tensor.record_stream(inbound)
            torch.cuda.set_stream(inbound)
        work.wait()

    def join(self) -> None:
        """Let the caller's stream wait for both."""
        for device, inbound in self._inbound.items():
            for stream in (self._worker.stream_of(device), inbound):
                torch.cuda.current_stream(device).wait_stream(stream)
