"""What waits in a loaded state must come again, also where nobody knows the model's tensors."""

from collections.abc import Collection, Mapping

from thinwire.comm import GroupCommunicator
from thinwire.errors import StateError
from thinwire.units.unit import SavedState

SHARED = ("feedback/mean_", "feedback/common_", "feedback/average_")  # of these nothing is lost
NAMED = 5  # at most, in an error


class Awaited:
    """Tensors of a loaded state of which something waits, until each has come once.

    A front end knows its model, and a state of another is refused as it is loaded. A synchronizer
    by itself learns of tensors as they come, some in one call and some in the next. When one comes
    for the second time the first step is complete: what has not come by then, although it came
    in the last before the save, has another name here or none, and would wait for ever.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._saved: set[str] = set()
        self._came: set[str] = set()

    def load(self, tensors: Mapping[str, SavedState], comm: GroupCommunicator) -> None:
        """All ranks' tensors, the same on each; of some something may wait on one rank only."""
        most = max((int(own["step"]) for own in tensors.values()), default=0)
        here = [int(int(own["step"]) == most and _waits(own)) for own in tensors.values()]
        anywhere = map(any, zip(*comm.all_gather_meta(here), strict=True)) if here else ()
        self._names = {name for name, waits in zip(tensors, anywhere, strict=True) if waits}
        self._saved, self._came = set(tensors), set()

    def refuse_without(self, names: Collection[str]) -> None:
        """Raise a `StateError`, before a step with these, if it shows what will not come."""
        left_out = sorted(self._names.difference(names))
        if not left_out or self._came.isdisjoint(names):
            return
        new = sorted((self._came | set(names)) - self._saved)
        raise StateError(
            "what waits in the state that was loaded would never be sent: saved and not averaged: "
            + _list(left_out)
            + (f"; averaged and not saved: {_list(new)}" if new else "")
            + " (average what is left out at least once, with zeros if there is no gradient, or "
            "load a state of these tensors)"
        )

    def came(self, names: Collection[str]) -> None:
        """In a step that is over."""
        if self._names:
            self._came.update(names)
            self._names.difference_update(names)


def _waits(own: SavedState) -> bool:
    kept = (v for k, v in own.items() if k.startswith("feedback/") and not k.startswith(SHARED))
    return any(bool(value.any()) for value in kept)


def _list(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (" …" if len(names) > NAMED else "")
