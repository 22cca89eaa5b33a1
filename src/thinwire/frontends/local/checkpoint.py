"""How ranks go on with local steps from what they wrote down, at any number of them.

All of a state is looked at before anything changes, as in `engine/checkpoint.py`, which has the
part that the exchange remembers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thinwire.comm import GroupCommunicator
from thinwire.engine.saved import Saved, check_seal, content, states_in
from thinwire.errors import StateError
from thinwire.rng import fingerprint

OUTER_VERSION = 1


@dataclass(frozen=True, slots=True)
class Restored:
    """What a rank goes on with: `own` in the middle of its round, or from where all last met."""

    exchange: Saved
    first: Mapping[str, Any]  # what is the same on all ranks may be read from it
    own: Mapping[str, Any] | None  # None where another number of ranks saved it
    summary: str


def restore(saved: Saved, comm: GroupCommunicator, fragments: int, outer: str) -> Restored:
    """This rank's part: of its own state, or of all ranks'."""
    states = states_in(saved)
    if not states:
        raise StateError("the list of states is empty: pass those of all ranks")
    for state in states:
        _check(state, fragments, outer)
    if len({summary(state) for state in states}) > 1:
        lines = "\n".join(f"  {summary(state)}" for state in states)
        raise StateError(f"the list has states of different saves:\n{lines}")
    first, exchanges = states[0], [state["exchange"] for state in states]
    if isinstance(saved, Mapping) and "ranks" not in saved:
        return Restored(exchanges[0], first, first, summary(first))
    as_many = first["exchange"]["world"] == comm.size
    own = next((s for s in states if as_many and s["exchange"]["rank"] == comm.rank), None)
    return Restored(exchanges, first, own, summary(first))


def summary(state: Mapping[str, Any]) -> str:
    """What must be the same in the states of all ranks, in a line."""
    moments = [
        content(value)
        for own in state["outer"]["state"].values()
        for value in own.values()
        if hasattr(value, "shape")
    ]
    met = fingerprint(repr([*map(content, state["shared"].values()), *moments]))
    due = [(one["fragment"], one["due"]) for one in state["under_way"]]
    return (
        f"round {state['round']}, {state['in_round']} of all {state['steps']} steps into it, under "
        f"way {due or 'nothing'} (the model and moments that ranks share: {met:016x})"
    )


def _check(state: Mapping[str, Any], fragments: int, outer: str) -> None:
    """Refuse what is no state of local steps, or was saved with others."""
    if not isinstance(state, Mapping) or "shared" not in state:
        raise StateError(f"this is no state that thinwire.outer saved: {type(state).__name__}")
    if state["version"] != OUTER_VERSION:
        raise StateError(f"state version {state['version']}, expected {OUTER_VERSION}")
    check_seal(state)
    if (state["fragments"], state["kind"]) != (fragments, outer):
        raise StateError(
            f"the state was saved with fragments={state['fragments']} and an outer "
            f"{state['kind']}, here are fragments={fragments} and {outer}: go on with the same"
        )
