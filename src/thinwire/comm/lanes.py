"""The groups that payloads travel by: one, or several side by side."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch.distributed as dist

from thinwire.comm.groups import abort, let_go


class Lanes:
    """Groups of the same ranks. What one has under way does not hold up what another has.

    A group works on one exchange after the other, so whatever waits in one, for a peer or for the
    end of its slowest message, is waited for by all that follow. Groups after the first are made
    when they are first used, on all ranks at the same point.
    """

    def __init__(self, make: Callable[[], dist.ProcessGroup]) -> None:
        self.now, self._make = make(), make
        self._groups = [self.now]

    @contextmanager
    def lane(self, number: int) -> Iterator[None]:
        """Exchange by this group inside. Not for several threads at a time."""
        while len(self._groups) <= number:
            self._groups.append(self._make())
        usual, self.now = self.now, self._groups[number]
        try:
            yield
        finally:
            self.now = usual

    def abort(self) -> None:
        """End what is under way in any of them, on this rank alone."""
        abort(self._groups)

    def let_go(self) -> None:
        """End them, in the order they were made in on all ranks."""
        for group in self._groups:
            let_go(group)
