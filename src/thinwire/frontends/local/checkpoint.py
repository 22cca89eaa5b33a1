"""How ranks go on with local steps from what they wrote down, at any number of them.

All of a state is looked at before anything changes, as in `engine/checkpoint.py`, which has the
part that the exchange remembers.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from torch import Tensor

from thinwire.comm import GroupCommunicator
from thinwire.engine.saved import SEAL, Saved, check_fields, check_seal, content, states_in
from thinwire.errors import StateError
from thinwire.frontends.local.fits import check_optimizer, check_tensors
from thinwire.frontends.local.setups import Setup
from thinwire.frontends.local.shared import SharedCopy
from thinwire.rng import fingerprint

OUTER_VERSION = 3
FIELDS: dict[str, type | tuple[type, ...]] = {
    "version": int, "fragments": int, "kind": str, "exchange": Mapping, "steps": int, "round": int,
    "in_round": int, "shared": Mapping, "outer": Mapping, "own": Mapping,
    "rates": (list, tuple), "beside": Mapping, "under_way": (list, tuple), SEAL: int,
}  # fmt: skip
UNDER_WAY: dict[str, type] = {
    "fragment": int, "every": int, "made": int, "due": int,
    "sent": Mapping, "moved": Mapping, "means": Mapping,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Here:
    """What a state must fit: these local steps, of this model."""

    setup: Setup
    fragments: Sequence[tuple[str, ...]]
    parameters: Mapping[str, Tensor]
    shared: SharedCopy
    groups: int  # of the optimisers, where their moments are brought to the mean


@dataclass(frozen=True, slots=True)
class Restored:
    """What a rank goes on with: `own` in the middle of its round, or from where all last met."""

    exchange: Saved
    first: Mapping[str, Any]  # what is the same on all ranks may be read from it
    own: Mapping[str, Any] | None  # None where another number of ranks saved it
    length: int  # of the round
    summary: str


def restore(
    saved: Saved, comm: GroupCommunicator, here: Here, lost: Collection[int] = ()
) -> Restored:
    """This rank's part: of its own state, or of all ranks' but those that are `lost`."""
    states = states_in(saved)
    if not states:
        raise StateError("the list of states is empty: pass those of all ranks")
    for state in states:
        _check(state, here)
    if len({summary(state) for state in states}) > 1:
        lines = "\n".join(f"  {summary(state)}" for state in states)
        raise StateError(f"the list has states of different saves:\n{lines}")
    first, exchanges = states[0], [state["exchange"] for state in states]
    length = here.setup.length(first["round"])
    own: Mapping[str, Any] | None = first
    exchange: Saved = exchanges[0]
    if not isinstance(saved, Mapping) or "ranks" in saved:
        as_many = first["exchange"].get("world") == comm.size and not lost
        mine = (s for s in states if as_many and s["exchange"].get("rank") == comm.rank)
        own, exchange = next(mine, None), exchanges
    if own is not None and own["in_round"] >= length:
        raise StateError(f"the state is {own['in_round']} steps into a round of {length} here")
    if own is not None:
        _check_model(own, here.parameters)
    return Restored(exchange, first, own, length, summary(first))


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


def _check(state: Mapping[str, Any], here: Here) -> None:
    """Refuse what is no state of local steps, was saved with others, or does not fit the model."""
    if not isinstance(state, Mapping) or not {"version", "shared"} <= state.keys():
        raise StateError(f"this is no state that thinwire.outer saved: {type(state).__name__}")
    if state["version"] != OUTER_VERSION:
        raise StateError(f"state version {state['version']}, expected {OUTER_VERSION}")
    check_fields(state, FIELDS)
    check_seal(state)
    kind, fragments = type(here.shared.optimizer).__name__, len(here.fragments)
    if (state["fragments"], state["kind"]) != (fragments, kind):
        raise StateError(
            f"the state was saved with fragments={state['fragments']} and an outer "
            f"{state['kind']}, here are fragments={fragments} and {kind}: go on with the same"
        )
    for counter in ("steps", "round", "in_round"):
        if state[counter] < 0:
            raise StateError(f"{counter!r} of the state is {state[counter]}")
    check_tensors(state["shared"], here.shared.parameters, "the shared copy")
    check_optimizer(state["outer"], here.shared)
    own = state["own"]
    if own.keys() != here.parameters.keys() or not all(map(_is_share, own.values())):
        raise StateError(f"'own' of the state is no share of each parameter: {own}")
    if len(state["rates"]) != here.groups or not all(map(_are_rates, state["rates"])):
        raise StateError(
            f"the state has learning rates of {len(state['rates'])} groups of parameters, by which "
            f"moments='mean' goes, and here are {here.groups}: go on with the same moments="
        )
    for one in state["under_way"]:
        _check_under_way(one, here)


def _check_model(own: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> None:
    """Refuse to go on with another model than that of the save: its way is not this rank's."""
    other = [name for name, p in parameters.items() if own["beside"].get(name) != content(p)]
    if other:
        raise StateError(
            f"this rank's model is not the one that it saved beside the state: {other[0]!r} "
            f"differs ({len(other)} such). Load it after outer(), which gives all ranks the first "
            "one's, and before the state; each rank its own, or synchronize() before a save of one"
        )


def _are_rates(saved: Any) -> bool:
    return isinstance(saved, list | tuple) and all(
        isinstance(rate, float) and isfinite(rate) for rate in saved
    )


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def _check_under_way(one: Any, here: Here) -> None:
    what = "a fragment under way"
    if not isinstance(one, Mapping):
        raise StateError(f"{what} is {type(one).__name__}; is this all of what was saved?")
    check_fields(one, UNDER_WAY, what)
    if one["fragment"] not in range(len(here.fragments)):
        raise StateError(f"fragment {one['fragment']} is under way, of {len(here.fragments)}")
    if one["every"] < 1 or not 0 <= one["made"] <= one["due"]:
        raise StateError(
            f"{what} was sent after {one['made']} steps of rounds of {one['every']}, and is due "
            f"after {one['due']}"
        )
    names = here.fragments[one["fragment"]]
    check_tensors(one["means"], {name: here.shared.parameters[name] for name in names}, what)
    if one["sent"]:  # nothing where no steps are kept apart
        check_tensors(one["sent"], {name: here.parameters[name] for name in names}, what)
