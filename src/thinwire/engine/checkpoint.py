"""What a rank writes down of its state, and how ranks go on from it, at any number of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thinwire.comm import GroupCommunicator
from thinwire.errors import RecipeError
from thinwire.units.unit import SavedState

STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Restored:
    """What a rank goes on with."""

    seed: int
    choice: dict[str, str]  # of `auto`, by tensor
    tensors: dict[str, SavedState]


def restore(
    saved: Mapping[str, Any] | Sequence[Mapping[str, Any]], comm: GroupCommunicator
) -> Restored:
    """This rank's part: of its own state, or, at another P, of the list of all ranks'."""
    states = [saved] if isinstance(saved, Mapping) else saved
    if isinstance(saved, Mapping):
        if saved["world"] != comm.size:
            raise RecipeError(
                f"the state was saved by {saved['world']} ranks and this group has {comm.size}: "
                "pass the list of all ranks' states"
            )
        mine = states
    else:
        ranks, world = sorted(s["rank"] for s in states), states[0]["world"] if states else 0
        if not states or ranks != list(range(world)):
            raise RecipeError(
                f"the list has the states of ranks {ranks}, and {world} ranks saved one: all are "
                "needed, or what waits on the others is lost"
            )
        # Each old rank's residual goes to one new rank, so their sum stays what it was.
        mine = [s for s in states if s["rank"] % comm.size == comm.rank]
    for one in states:
        if one["version"] != STATE_VERSION:
            raise RecipeError(f"state version {one['version']}, expected {STATE_VERSION}")
    first = states[0]
    tensors = _merged(states, mine, comm.size)
    return Restored(first["seed"], dict(first.get("choice", {})), tensors)


def _merged(
    everyone: Sequence[Mapping[str, Any]], states: Sequence[Mapping[str, Any]], size: int
) -> dict[str, SavedState]:
    """One rank's state out of several old ranks': per element it is their sum, zero of none.

    What belongs to the unit or, as keys that begin with "mean_", is the same on every rank, is
    taken as it is; a mean over P ranks becomes one over the new number. Of keys that begin with
    "average_" every rank gets the mean over all.
    """
    template, merged = everyone[0], dict[str, SavedState]()
    for name, first in template["tensors"].items():
        merged[name] = {}
        for key, value in first.items():
            if key.startswith("feedback/mean_"):
                merged[name][key] = value * (template["world"] / size)
            elif key.startswith("feedback/average_") and len(everyone) != size:
                parts = [s["tensors"][name][key] for s in everyone if key in s["tensors"][name]]
                merged[name][key] = torch.stack(parts).mean(0)
            elif key.startswith("feedback/"):
                parts = [s["tensors"][name][key] for s in states if key in s["tensors"][name]]
                merged[name][key] = sum(parts, torch.zeros_like(value))
            else:
                merged[name][key] = value.clone()
    return merged
