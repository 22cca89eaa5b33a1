"""What is between its sending and its application, and how it is written down."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from torch import Tensor

Tensors = dict[str, Tensor]
_TIMES = ("fragment", "every", "made", "due")


@dataclass(frozen=True, slots=True)
class Means:
    """What an exchange brought; momentum alone must not move the copy, where no rank has moved.

    On a GPU that is asked beside the local steps, by the worker.
    """

    by_name: Tensors
    moved: bool

    @classmethod
    def of(cls, by_name: Tensors) -> "Means":
        """Of what every rank has."""
        return cls(by_name, any(bool(mean.any()) for mean in by_name.values()))


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A fragment that travels; `sent` is where the model was left.

    `moved` is how far this rank came in the round, where its moments are brought to the mean.
    """

    fragment: int
    every: int  # steps of its round
    made: int  # local steps, of all rounds, when it was sent
    due: int  # by the same count
    sent: Tensors
    moved: Tensors
    means: Future[Means]

    def saved(self) -> dict[str, Any]:
        """For a state; it has arrived."""
        means = {name: mean.clone() for name, mean in self.means.result().by_name.items()}
        times = {name: getattr(self, name) for name in _TIMES}
        return times | {"sent": dict(self.sent), "moved": dict(self.moved), "means": means}

    @classmethod
    def arrived(
        cls, saved: Mapping[str, Any], on_device: Callable[[Mapping[str, Tensor]], Tensors]
    ) -> "UnderWay":
        """As `saved` wrote it down."""
        means: Future[Means] = Future()
        means.set_result(Means.of(on_device(saved["means"])))
        fragment, every, made, due = (saved[name] for name in _TIMES)
        sent, moved = on_device(saved["sent"]), on_device(saved["moved"])
        return cls(fragment, every, made, due, sent, moved, means)
