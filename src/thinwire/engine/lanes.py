"""Units that take turns on two streams: while one's sums come back, the next one's parts go out."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from thinwire.comm import GroupCommunicator
from thinwire.engine.thread import HIGHEST

LANES = 2


class StreamLanes:
    """Two streams, each with a group of its own, for exchanges of more than one round.

    Each round ends when its slowest message does, and until then the link has idle moments, which
    the other lane fills: four ranks that send 0.9 MB to each of the others and get as much back
    take 2.0 ms instead of 2.9 at 25 Gbit/s, where the bytes alone take 1.8
    (docs/results/all-to-all.log).

    Exchanges of one round gain nothing, and where ranks share a card the kernels of two lanes are
    in each other's way (93 ms a step of GPT-2 instead of 87, with topk): they stay on one stream.
    """

    def __init__(self, comm: GroupCommunicator) -> None:
        self._comm = comm
        self._streams: dict[torch.device, list[torch.cuda.Stream]] = {}
        self._taken = 0  # in this step; the ranks must agree on whose turn it is

    @contextmanager
    def take(self, device: torch.device) -> Iterator[int]:
        """Queue what is inside on the next lane, behind what the caller's stream has so far."""
        if device not in self._streams:
            self._streams[device] = [torch.cuda.Stream(device, HIGHEST) for _ in range(LANES)]
        turn = self._taken % LANES
        self._taken += 1
        stream = self._streams[device][turn]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream), self._comm.lane(turn):
            yield turn

    def join(self) -> None:
        """Let the caller's stream wait for all of them; the first lane is the next to be taken."""
        if self._taken:
            self._taken = 0
            for device, streams in self._streams.items():
                for stream in streams:
                    torch.cuda.current_stream(device).wait_stream(stream)
