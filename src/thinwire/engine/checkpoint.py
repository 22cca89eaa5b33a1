"""How ranks go on from what they wrote down, at any number of them.

All of a state is looked at before anything changes, so that one that is refused leaves no trace.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from thinwire.comm import GroupCommunicator
from thinwire.engine.fits import Forms, Reader, check_lost, check_state
from thinwire.engine.saved import Saved, content, states_in
from thinwire.errors import DisagreementError, StateError, ThinwireError
from thinwire.rng import fingerprint
from thinwire.types import TensorSpec
from thinwire.units.unit import SavedState


@dataclass(frozen=True, slots=True)
class Restored:
    """What a rank goes on with, and what of it must be the same on all ranks."""

    choice: dict[str, str]  # of `auto`, by tensor
    scale: float  # of the loss; 0: nobody said
    forms: Forms
    buckets: list[list[str]]  # as DDP handed the gradients over; of another P there are none
    tensors: dict[str, SavedState]
    summary: str


class Summarised(Protocol):
    """What a rank goes on with."""

    @property
    def summary(self) -> str:
        """What of it must be the same on all ranks, in a line."""


R = TypeVar("R", bound=Summarised)


def accepted_by_all(
    comm: GroupCommunicator, read: Callable[[], R], mesh: GroupCommunicator | None = None
) -> R:
    """What this rank reads, if no rank refuses: all meet, or the others would wait for it.

    `mesh`: the same ranks, or with them those of other shards, which read something else.
    """
    restored, refusal = None, None
    try:
        restored = read()
    except ThinwireError as error:
        refusal = error
    except Exception as error:  # numbers, texts and tensors in each other's places
        refusal = StateError(f"this is no state that thinwire saved: {error!r}")
    says = f"refused: {refusal}" if restored is None else restored.summary
    told: ThinwireError | None = refusal
    try:
        comm.agree("the saved state", says)
    except DisagreementError as error:
        told = error
    if mesh not in (None, comm) and (bad := mesh.agree("the load", "a state", told is not None)):
        told = told or StateError(
            f"ranks {', '.join(map(str, bad))} of the mesh refused their states"
        )
    if told is not None:
        raise told from (None if told is refusal else refusal)
    assert restored is not None
    return restored


def restore(
    saved: Saved, reader: Reader, recipe_changed: bool = False, lost: Collection[int] = ()
) -> Restored:
    """This rank's part: of its own state, or, at another P, of all ranks'.

    `recipe_changed`: only what waits goes along, if it has a place in the reader's recipe.
    `lost`: ranks whose states are gone, with what waited there.
    """
    states = states_in(saved)
    for state in states:
        check_state(state, reader, recipe_changed)
    several = "ranks" in saved if isinstance(saved, Mapping) else not isinstance(saved, Tensor)
    if lost:
        check_lost(states, lost)
    mine = _of_all(states, reader, lost) if several else _own(states[0], reader)
    first = states[0]
    as_before = first["world"] == reader.size and first["node_size"] == reader.node_size
    if several and as_before:
        mine = [state for state in states if state["rank"] == reader.rank]
        states = mine or states  # in a lost rank's place nothing waits
    tensors = _merged(states, mine, reader.size)
    if recipe_changed:
        tensors = {name: _what_waits(name, one, reader) for name, one in tensors.items()}
    return Restored(
        dict(first["choice"]),
        float(first["scale"]),
        {name: list(form) for name, form in first["forms"].items()},
        [list(names) for names in first["buckets"]] if as_before else [],
        tensors,
        summary(first),
    )


def summary(state: Mapping[str, Any]) -> str:
    """What must be the same in the states of all ranks, in a line."""
    steps = {name: int(own["step"]) for name, own in state["tensors"].items()}
    same = {k: state[k] for k in ("recipe", "seed", "node_size", "forms", "buckets")}
    shared = {}
    if state["node_size"] == 1:  # else only the first rank of a node has it
        shared = {
            f"{name} {key}": content(value)
            for name, own in state["tensors"].items()
            for key, value in own.items()
            if key.startswith(("collective/", "feedback/mean_", "feedback/common_"))
        }
    rest = fingerprint(json.dumps([same, steps, shared], sort_keys=True))
    at = " and ".join(map(str, sorted(set(steps.values())))) or "0"
    choice = f", choice {dict(sorted(state['choice'].items()))}" if state["choice"] else ""
    return (
        f"{len(steps)} tensors at step {at}, saved by {state['world']} ranks with loss scale "
        f"{state['scale']:g}{choice} (all that ranks share: {rest:016x})"
    )


def _own(state: Mapping[str, Any], reader: Reader) -> list[Mapping[str, Any]]:
    if state["world"] != reader.size:
        raise StateError(
            f"the state was saved by {state['world']} ranks and this group has {reader.size}: "
            "pass the list of all ranks' states"
        )
    if state["rank"] != reader.rank:
        raise StateError(
            f"the state was saved by rank {state['rank']} and this is rank {reader.rank}: every "
            "rank saves and loads its own, or all of them (state_dict(gather=True))"
        )
    if state["node_size"] != reader.node_size and reader.size > 1:
        raise StateError(
            f"the state was saved with nodes of {state['node_size']} ranks, the first of which has "
            f"what waits, and they are here of {reader.node_size}: pass the list of all ranks' "
            "states, or what waits on the others is lost"
        )
    return [state]


def _of_all(
    states: Sequence[Mapping[str, Any]], reader: Reader, lost: Collection[int]
) -> list[Mapping[str, Any]]:
    """Each old rank's state goes to one new rank that keeps one, so their sum stays as it was."""
    ranks, world = sorted(s["rank"] for s in states), states[0]["world"] if states else 0
    if not states or sorted([*ranks, *lost]) != list(range(world)):
        without = f", and lost={sorted(lost)}" if lost else ""
        raise StateError(
            f"the list has the states of ranks {ranks}{without}, and {world} ranks saved one: all "
            "are needed, or what waits on the others is lost (load_state_dict(…, lost=[…]) goes on "
            "without those that it names)"
        )
    lines = [f"  rank {s['rank']}: {summary(s)}" for s in states]
    if len({summary(s) for s in states}) > 1:
        raise StateError("the list has states of different saves:\n" + "\n".join(lines))
    keepers = range(0, reader.size, reader.node_size)
    nodes = {s["rank"]: s["rank"] // s["node_size"] for s in states}
    place = {node: number for number, node in enumerate(sorted(set(nodes.values())))}
    return [s for s in states if keepers[place[nodes[s["rank"]]] % len(keepers)] == reader.rank]


def _what_waits(name: str, own: SavedState, reader: Reader) -> SavedState:
    """A tensor's state for another recipe: thresholds and the like start anew."""
    waits = {k: v for k, v in own.items() if k.startswith("feedback/")}
    feedback = reader.pipeline.of_tensor(name).feedback
    spec = TensorSpec(name, 0, torch.float32, torch.device("cpu"))
    takes = {f"feedback/{key}" for key in feedback.init(spec)}
    if waits and waits.keys() != takes:
        raise StateError(
            f"the state of {name!r} has {', '.join(sorted(waits))}, and {feedback!r} keeps "
            f"{', '.join(sorted(takes)) or 'nothing'}: it would be lost or read as something else"
        )
    return {"step": own["step"]} | waits


def _merged(
    everyone: Sequence[Mapping[str, Any]], states: Sequence[Mapping[str, Any]], size: int
) -> dict[str, SavedState]:
    """One rank's state out of several old ranks': per element it is their sum, zero of none.

    What belongs to the unit or, as keys that begin with "mean_" or "common_", is the same on every
    rank, is taken as it is; but a "mean_" over P ranks becomes one over the new number. Of keys
    that begin with "average_" every rank gets the mean over all. Of a node only the first rank has
    what waits.
    """
    merged = dict[str, SavedState]()
    for name in everyone[0]["tensors"]:
        merged[name] = {}
        known = {k: v for s in reversed(everyone) for k, v in s["tensors"][name].items()}
        for key, value in known.items():
            if key.startswith("feedback/mean_"):
                merged[name][key] = value * (everyone[0]["world"] / size)
            elif key.startswith("feedback/average_") and len(everyone) != size:
                parts = [s["tensors"][name][key] for s in everyone if key in s["tensors"][name]]
                merged[name][key] = torch.stack(parts).mean(0)
            elif key.startswith("feedback/") and not key.startswith("feedback/common_"):
                parts = [s["tensors"][name][key] for s in states if key in s["tensors"][name]]
                # One alone to the last bit: adding zero makes -0.0 another.
                first_part = parts[0].clone() if parts else torch.zeros_like(value)
                merged[name][key] = sum(parts[1:], first_part)
            else:
                merged[name][key] = value.clone()
    return merged
