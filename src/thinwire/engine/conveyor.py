"""Units in a row on one stream: while one's exchange is under way, the next is selected from."""

from collections.abc import Callable, Iterator

import torch

from thinwire.comm import GroupCommunicator
from thinwire.engine.thread import HIGHEST

PLACES = 3  # units that are open at once: of a step with two exchanges as many are
Work = Iterator[object]
"""A unit's step, which stops wherever it has begun an exchange."""


class Conveyor:
    """The kernels of all units go to the caller's stream, and exchanges to others beside it.

    A unit that comes goes first, up to its exchange; then each one before it makes one stretch
    more. So no gradient waits behind the exchange of another. It matters most at the end: the last
    gradient of GPT-2, a third of the model, comes when the backward pass is over.

    A rank that launches a step kernel by kernel finishes one unit before it begins the next. Where
    units have several exchanges their order is then another one: neighbours have groups of their
    own, and so have streams of their own to wait on.
    """

    def __init__(self, comm: GroupCommunicator) -> None:
        self._comm = comm
        self._streams: dict[tuple[torch.device, int], torch.cuda.Stream] = {}
        self._open: list[Work] = []  # the youngest first
        self._taken = 0  # in this step; the ranks must agree on whose turn it is

    def place(self) -> int:
        """For the next unit: no other has it while that unit is open."""
        self._taken += 1
        return self._taken % PLACES

    def add(self, work: Work) -> None:
        """Begin a unit's step, and bring those before it a stretch further."""
        self._open.insert(0, work)
        self._advance()
        while len(self._open) == PLACES:  # it has more exchanges than others have
            for _ in self._open.pop():
                pass

    def beside(self, device: torch.device, group: int, exchange: Callable[[], object]) -> Work:
        """Exchange by one of the groups, on its stream; when it is over the caller's goes on."""
        if (device, group) not in self._streams:
            self._streams[device, group] = torch.cuda.Stream(device, HIGHEST)
        stream = self._streams[device, group]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream), self._comm.lane(group):
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
        for (device, _), stream in self._streams.items():
            torch.cuda.current_stream(device).wait_stream(stream)

    def _advance(self) -> None:
        over = object()
        self._open = [work for work in self._open if next(work, over) is not over]
