"""What of a state is one rank's own, and what all share: for groups that ranks join and leave.

Own is what waits of a rank's own gradients. It goes on where it is, and is lost with its rank; who
joins has none. All else is the same on every rank, or, of averages, serves any of them.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

from thinwire.comm import GroupCommunicator
from thinwire.engine.saved import SEAL, State, check_seal, seal
from thinwire.units.unit import SavedState

_KEPT, _MEAN = "feedback/", "feedback/mean_"
_SHARED = (_MEAN, "feedback/common_", "feedback/average_")


def shared_part(state: Mapping[str, Any]) -> State:
    """The state without what is a rank's own: of that only dtypes are left, in empty tensors."""
    tensors = {
        name: {key: value[:0] if _is_own(key) else value for key, value in one.items()}
        for name, one in state["tensors"].items()
    }
    return seal({key: value for key, value in state.items() if key != SEAL} | {"tensors": tensors})


def joining(shared: Mapping[str, Any]) -> State:
    """A state to begin with by what others share; of its own, nothing waits."""
    check_seal(shared)
    tensors = {
        name: {
            key: value.new_zeros(prod(shared["forms"][name][1])) if _is_own(key) else value
            for key, value in one.items()
        }
        for name, one in shared["tensors"].items()
    }
    return alone(dict(shared) | {"tensors": tensors})


def alone(state: Mapping[str, Any]) -> State:
    """As one rank by itself would have saved it."""
    return seal(
        {key: value for key, value in state.items() if key != SEAL} | {"world": 1, "rank": 0}
    )


def in_words(state: Mapping[str, Any]) -> str:
    """What must be the same on all ranks of a new group."""
    steps = {name: int(one["step"]) for name, one in sorted(state["tensors"].items())}
    return f"steps {steps}, loss scale {state['scale']:g}, choice {state['choice']}"


def renew_means(tensors: Mapping[str, SavedState], comm: GroupCommunicator) -> None:
    """Means over the ranks are those over the ranks that there are now."""
    for _, one in sorted(tensors.items()):
        for key in sorted(key for key in one if key.startswith(_MEAN)):
            own = one[_KEPT + key.removeprefix(_MEAN)]
            one[key] = comm.all_reduce(own.clone()).div_(comm.size)


def _is_own(key: str) -> bool:
    return key.startswith(_KEPT) and not key.startswith(_SHARED)
