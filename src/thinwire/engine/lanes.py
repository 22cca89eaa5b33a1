"""Streams on which units go through a step beside the backward pass, several at once."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

LANES = 4  # under way at once; the hardware has few queues more
_HIGHEST = -1  # priority: what travels first should be ready first


class Lanes:
    """High-priority streams. A unit keeps its lane, so that its memory belongs to one stream."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, list[torch.cuda.Stream]] = {}
        self._assigned: dict[tuple[str, ...], int] = {}

    @contextmanager
    def lane_of(self, names: tuple[str, ...], device: torch.device) -> Iterator[None]:
        """Queue on the lane of the unit of these tensors, behind what the caller's stream has."""
        if device not in self._streams:
            self._streams[device] = [torch.cuda.Stream(device, _HIGHEST) for _ in range(LANES)]
        number = self._assigned.setdefault(names, len(self._assigned))
        stream = self._streams[device][number % LANES]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            yield

    def join(self) -> None:
        """Let the caller's stream wait for all lanes."""
        for device, streams in self._streams.items():
            for stream in streams:
                torch.cuda.current_stream(device).wait_stream(stream)
