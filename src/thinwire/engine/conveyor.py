"""Units in a row on one stream: while one's exchange is under way, the next is selected from."""

from collections.abc import Callable, Iterator

import torch

from thinwire.engine.thread import HIGHEST

PLACES = 2  # units that are open at once
Work = Iterator[object]
"""A unit's step, which stops when it has begun its exchange."""


class Conveyor:
    """The kernels of all units go to the caller's stream, and exchanges to another beside it.

    A unit that comes goes first, up to its exchange; then the one before it comes to its end. So no
    gradient waits behind the exchange of another. It matters most at the end: the last gradient of
    GPT-2, a third of the model, comes when the backward pass is over.

    For units of one exchange. With more their order would depend on how steps are launched: a rank
    that does not replay finishes one unit before it begins the next. Groups of their own would
    part them, but with these a test of a stalled peer failed (docs/results/test-gpu.log): probably
    since no group can be aborted whose exchange is queued on a stream behind that of another.
    """

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._open: list[Work] = []  # the youngest first
        self._taken = 0  # in this step

    def place(self) -> int:
        """For the next unit: no other has it while that unit is open."""
        self._taken += 1
        return self._taken % PLACES

    def add(self, work: Work) -> None:
        """Begin a unit's step, and end that of the one before it."""
        self._open.insert(0, work)
        self._advance()

    def beside(self, device: torch.device, exchange: Callable[[], object]) -> Work:
        """Exchange on the other stream; when that is over the caller's goes on."""
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device, HIGHEST)
        stream = self._streams[device]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            exchange()
        over = stream.record_event()
        yield over
        torch.cuda.current_stream(device).wait_event(over)

    def drain(self) -> None:
        """Bring all units to their end."""
        while self._open:
            self._advance()

    def finish(self) -> None:
        """As `drain`, at the end of a step: the first place is the next to be taken."""
        self.drain()
        self._taken = 0

    def abandon(self) -> None:
        """Leave all units where they are, and let the caller's stream wait for their exchanges."""
        self._open, self._taken = [], 0
        for device, stream in self._streams.items():
            torch.cuda.current_stream(device).wait_stream(stream)

    def _advance(self) -> None:
        over = object()
        self._open = [work for work in self._open if next(work, over) is not over]
