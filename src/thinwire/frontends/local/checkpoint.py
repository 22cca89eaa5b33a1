"""What a state of local steps must have before it is gone on from."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from thinwire.comm import GroupCommunicator
from thinwire.errors import RecipeError

OUTER_VERSION = 1


def own_of(
    states: Sequence[Mapping[str, Any]], comm: GroupCommunicator
) -> Mapping[str, Any] | None:
    """This rank's among the states of as many ranks; None where another number saved them."""
    if not states:
        raise RecipeError("the list of states is empty: pass those of all ranks")
    mine = (one for one in states if one["exchange"]["rank"] == comm.rank)
    return next(mine, None) if states[0]["exchange"]["world"] == comm.size else None


def refuse_other(
    saved: Mapping[str, Any], parameters: Mapping[str, Tensor], fragments: int
) -> None:
    """A state that another version, model or number of fragments left."""
    if saved["version"] != OUTER_VERSION:
        raise RecipeError(f"state version {saved['version']}, expected {OUTER_VERSION}")
    there = {name: tuple(value.shape) for name, value in saved["shared"].items()}
    here = {name: tuple(p.shape) for name, p in parameters.items()}
    if there != here:
        name = next(n for n in (*here, *there) if here.get(n) != there.get(n))
        raise RecipeError(
            f"the saved state has {name!r} of shape {there.get(name)}, the model {here.get(name)}: "
            "it is another model's"
        )
    late = [one["fragment"] for one in saved["under_way"] if one["fragment"] >= fragments]
    if late:
        raise RecipeError(
            f"fragment {late[0]} was under way when the state was saved, and there are "
            f"{fragments} now: go on with as many as then"
        )
