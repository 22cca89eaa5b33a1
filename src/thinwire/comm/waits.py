"""Waiting for peers: what is said of one that does not come, and what follows from it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from thinwire.comm.groups import DEFAULT_TIMEOUT
from thinwire.comm.messages import Waiting
from thinwire.comm.watch import Queued, Watch, Work
from thinwire.errors import ExchangeError


class Waits:
    """Who a rank is among how many, and whether it still waits for the others.

    After an error the ranks are no longer in step: a message of the next exchange would be taken
    for one of the last. So the first ends all, and whatever follows is refused at once.
    """

    def __init__(self) -> None:
        self.rank, self.size, self.backend, self.timeout = 0, 1, "none", DEFAULT_TIMEOUT
        self.timed: Callable[[], AbstractContextManager[None]] = nullcontext  # around every wait
        self._watch: Watch | None = None  # a Gloo wait has a timeout itself
        self._given_up: str | None = None  # why

    @property
    def lost(self) -> str | None:
        """What to say of a group that was given up, because a peer did not come in time."""
        if self._watch is None or not self._watch.overdue:
            return None
        return (
            f"rank {self.rank} of {self.size}: an exchange over {self.backend} did not end within "
            f"{self.timeout.total_seconds():g} s (a peer died or stalled); its group was given up"
        )

    def watch_over(self, works: Sequence[Work]) -> None:
        """Give up the group if one of these, begun just now, takes longer than the timeout."""
        if self._watch is not None:
            for work in works:
                self._watch.add(work)

    def watch_queue(self, device: torch.device) -> None:
        """The same of all that the caller's stream has queued: who asks the device waits for it."""
        if self._watch is not None and device.type == "cuda":
            self._watch.add(Queued(torch.cuda.current_stream(device).record_event()))

    def give_up(self, why: str) -> None:
        """Refuse every further exchange: the ranks are no longer in step with each other."""
        if self.size > 1:
            self._given_up = self._given_up or why

    def refuse_if_given_up(self) -> None:
        """Raise an `ExchangeError` that says why nothing can be exchanged any more."""
        why = self.lost or self._given_up
        if why is not None:
            raise ExchangeError(
                f"rank {self.rank} of {self.size}: the group was given up ({why}); its state is "
                "whole: save it, and load it into a new group"
            )

    @contextmanager
    def named(self, phase: str) -> Iterator[Waiting]:
        """A backend's RuntimeError says little; add who waited for whom. The group is given up."""
        self.refuse_if_given_up()
        waiting = Waiting()
        try:
            with self.timed():
                yield waiting
        except ExchangeError:
            raise
        except RuntimeError as error:
            peer = "a peer" if waiting.peer is None else f"rank {waiting.peer}"
            text = (
                f"rank {self.rank} of {self.size}: {phase} over {self.backend} broke off "
                f"({peer} died, gave up, or did not answer within "
                f"{self.timeout.total_seconds():g} s): "
                f"{error}"
            )
            self.give_up(text)
            raise ExchangeError(text) from error
