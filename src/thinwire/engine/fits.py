"""Whether a saved state fits who is to go on from it: all of it is looked at, nothing changed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from thinwire.engine.saved import SEAL, STATE_VERSION, check_fields, check_seal
from thinwire.errors import StateError
from thinwire.pipeline import Pipeline

FIELDS: dict[str, type | tuple[type, ...]] = {
    "version": int, "recipe": str, "seed": int, "world": int, "rank": int, "node_size": int,
    "scale": (int, float), "choice": Mapping, "forms": Mapping, "buckets": (list, tuple),
    "tensors": Mapping, SEAL: int,
}  # fmt: skip

Forms = dict[str, list[Any]]
"""By tensor: its dtype, as "float32", and its shape, as a list."""


def saved_form(tensor: Tensor) -> list[Any]:
    """What of a tensor must stay as it is from a save to the load."""
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]


@dataclass(frozen=True, slots=True)
class Reader:
    """Who goes on from a state, and what it must fit.

    `node_size` ranks keep one state, the first of them. `forms` are those of the tensors known
    by now; `knows_all`: there are no others.
    """

    pipeline: Pipeline
    seed: int
    rank: int = 0
    size: int = 1
    node_size: int = 1
    forms: Mapping[str, list[Any]] | None = None
    knows_all: bool = False


def check_lost(states: Sequence[Mapping[str, Any]], lost: Collection[int]) -> None:
    """Refuse where those who are left do not know what the lost ones had a part in."""
    means = {
        key.removeprefix("feedback/")
        for state in states
        for own in state["tensors"].values()
        for key in own
        if key.startswith("feedback/mean_")
    }
    if means:
        raise StateError(
            f"lost={sorted(lost)}: {', '.join(sorted(means))} of the state is of all ranks' own "
            "means, and cannot be told without theirs: begin without the state"
        )


def check_state(state: Mapping[str, Any], reader: Reader, recipe_changed: bool) -> None:
    """Refuse what is no state, or not one of this recipe, seed and model."""
    if isinstance(state, Mapping) and "shards" in state:
        raise StateError("the state is of a sharded model, and this one is not")
    if not isinstance(state, Mapping) or "version" not in state:
        raise StateError(f"this is no state that thinwire saved: {type(state).__name__}")
    if state["version"] != STATE_VERSION:
        raise StateError(
            f"state version {state['version']}, expected {STATE_VERSION}: go on with the thinwire "
            "that saved it, or without the state"
        )
    check_fields(state, FIELDS)
    check_seal(state)
    recipe = repr(reader.pipeline)
    if state["recipe"] != recipe and not recipe_changed:
        raise StateError(
            f"the state was saved by another recipe,\n  {state['recipe']}\nand this is\n  {recipe}"
            "\nload_state_dict(…, recipe_changed=True) takes along what waits, where it can"
        )
    if state["seed"] != reader.seed:
        raise StateError(f"the state was saved with seed {state['seed']}, this is {reader.seed}")
    check_model(state["forms"], reader.forms or {}, reader.knows_all)
    for name, own in state["tensors"].items():
        _check_tensor(name, own, state["forms"])


def check_model(
    forms: Mapping[str, Any], known: Mapping[str, list[Any]], knows_all: bool = True
) -> None:
    """Refuse tensors of other dtypes or shapes, and where all are known, others than those."""
    strange = [name for name in forms if knows_all and name not in known]
    missing = [name for name in known if knows_all and name not in forms]
    if strange or missing:
        raise StateError(
            "the state was saved of another model: "
            + "; ".join(
                f"{what} {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"
                for what, names in (("here is no", strange), ("it has no", missing))
                if names
            )
        )
    for name in sorted(known.keys() & forms.keys()):
        if list(forms[name]) != list(known[name]):
            raise StateError(f"{name!r} was saved as {forms[name]} and is {known[name]} here")


def _check_tensor(name: str, own: Mapping[str, Any], forms: Mapping[str, Any]) -> None:
    """Of every tensor a step, and what waits: finite, in single or double precision."""
    step = own.get("step")
    if not isinstance(step, Tensor) or step.dim() or step.is_floating_point() or int(step) < 0:
        raise StateError(f"the state of {name!r} has the step {step}")
    if name not in forms:
        raise StateError(f"the state of {name!r} comes without its dtype and shape")
    numel = prod(forms[name][1])
    for key, value in own.items():
        if not key.startswith("feedback/"):
            continue
        if value.dtype not in (torch.float32, torch.float64):
            raise StateError(f"the saved {key!r} of {name!r} is {value.dtype}, not float32 or 64")
        if value.shape != (numel,):
            raise StateError(
                f"the saved {key!r} of {name!r} has {value.numel()} elements, the tensor {numel}"
            )
        if not bool(value.isfinite().all()):
            raise StateError(f"the saved {key!r} of {name!r} has NaN or Inf")
