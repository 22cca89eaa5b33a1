"""What a step on a GPU finds out, read by the host once, when the step is over."""

import time
from collections.abc import Callable
from datetime import timedelta

import torch
from torch import Tensor

from thinwire.comm import GroupCommunicator
from thinwire.errors import ExchangeError

_POLL_S = 20e-6


class Readback:
    """Numbers on their way to the host, and who waits for them.

    Reading them is the one wait of a step, so it is here that a peer which died or stalled is
    noticed: a device waits for ever, we do not. Where the communicator gave up first, the numbers
    are there and say nothing.
    """

    def __init__(self, comm: GroupCommunicator) -> None:
        self.comm = comm
        self._waiting: list[tuple[Tensor, Callable[[int], None]]] = []

    def later(self, number: Tensor, then: Callable[[int], None]) -> None:
        """Call with the number when the step is over. It is one element, on any device."""
        # As one dtype already here, where the device has time.
        self._waiting.append((number.view(1).to(torch.int64), then))

    def read(self) -> None:
        """Wait for what the caller's stream has queued, and tell everyone."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        with self.comm.named("the end of the step"):
            numbers = torch.cat([number for number, _ in waiting])
            host = torch.empty(numbers.shape, dtype=torch.int64, pin_memory=numbers.is_cuda)
            host.copy_(numbers, non_blocking=True)
            if numbers.is_cuda:
                self._await(torch.cuda.current_stream(numbers.device).record_event())
        self.comm.refuse_if_given_up()
        for number, (_, then) in zip(host.tolist(), waiting, strict=True):
            then(number)

    def forget(self) -> None:
        """Nobody waits any more: the step broke off."""
        self._waiting = []

    def _await(self, event: torch.cuda.Event) -> None:
        limit: timedelta = self.comm.timeout
        deadline = time.monotonic() + limit.total_seconds()
        while not event.query():
            if time.monotonic() > deadline:
                self.comm.abort()
                raise ExchangeError(
                    f"rank {self.comm.rank} of {self.comm.size}: the step's exchange over "
                    f"{self.comm.backend} did not end within {limit.total_seconds():g} s "
                    "(a peer died or stalled); its communicator was given up"
                )
            time.sleep(_POLL_S)
