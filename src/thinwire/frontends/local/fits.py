"""Whether saved tensors, and what an optimiser remembered, fit what is here.

torch finds out while it loads, or later: a tensor of another shape is copied if that can be, and a
group without a learning rate is missed in the next step.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from thinwire.engine.fits import check_model, saved_form
from thinwire.engine.saved import check_fields
from thinwire.errors import StateError
from thinwire.frontends.local.shared import SharedCopy


def check_tensors(saved: Mapping[str, Any], here: Mapping[str, Tensor], what: str) -> None:
    """Refuse others than those that are here, and other dtypes or shapes."""
    for name, value in saved.items():
        if not isinstance(value, Tensor):
            raise StateError(f"{name!r} of {what} is {type(value).__name__}, not a tensor")
    forms = {name: saved_form(value) for name, value in saved.items()}
    check_model(forms, {name: saved_form(tensor) for name, tensor in here.items()})


def check_optimizer(saved: Mapping[str, Any], shared: SharedCopy) -> None:
    """Refuse what the outer optimiser could not go on from."""
    what = "the outer optimiser's state"
    check_fields(saved, {"state": Mapping, "param_groups": (list, tuple)}, what)
    groups, own_groups = saved["param_groups"], shared.optimizer.state_dict()["param_groups"]
    if len(groups) != len(own_groups):
        raise StateError(
            f"{what} has {len(groups)} groups of parameters, and the one here has {len(own_groups)}"
        )
    for number, (group, own) in enumerate(zip(groups, own_groups, strict=True)):
        _check_group(group, own, f"group {number} of {what}")
    names = dict(enumerate(shared.stepped))
    for place, remembered in saved["state"].items():
        if not (isinstance(place, str) and place.isdecimal() and int(place) in names):
            raise StateError(f"{what} has a parameter {place!r}, and here are {len(names)}")
        _check_remembered(remembered, names[int(place)], shared)
    loaded = _rehearse(saved, shared)
    for number, (group, own) in enumerate(zip(groups, own_groups, strict=True)):
        _check_missing(group, own, loaded[number], f"group {number} of {what}")


def _check_group(group: Any, own: Mapping[str, Any], what: str) -> None:
    if not isinstance(group, Mapping):
        raise StateError(f"{what} is {type(group).__name__}; is this all of what was saved?")
    if group.get("params") != own["params"]:
        there = group.get("params", "missing")
        raise StateError(f"{what} has the parameters {there}, here are {own['params']}")
    for key, option in own.items():
        if key in group and not _alike(group[key], option):
            raise StateError(f"{key} of {what} is {group[key]!r}, and {option!r} here")


def _check_missing(
    group: Mapping[str, Any], own: Mapping[str, Any], loaded: Mapping[str, Any], what: str
) -> None:
    """Refuse a group that lacks an option, unless it is one that its torch had not.

    A later one knows what such an option was until then, and fills it in; that must be what is
    set here. None leaves it to torch.
    """
    lacks = own.keys() - group.keys()
    as_here = (k for k in lacks & loaded.keys() if own[k] is None or loaded[k] == own[k])
    if missing := sorted(lacks.difference(as_here)):
        raise StateError(f"{what} has no {', '.join(missing)}")


def _alike(saved: Any, own: Any) -> bool:
    """Whether an option is of the same kind; None may stand for any: it is often the default."""
    if saved is None or own is None:
        return True
    if isinstance(own, list | tuple):
        same_length = isinstance(saved, list | tuple) and len(saved) == len(own)
        return same_length and all(map(_alike, saved, own))
    if isinstance(own, int | float | Tensor):  # a learning rate may be any of them
        return isinstance(saved, int | float) or (isinstance(saved, Tensor) and not saved.dim())
    return isinstance(saved, type(own))


def _check_remembered(remembered: Any, name: str, shared: SharedCopy) -> None:
    """What torch's optimisers remember of a parameter is a number, or by element, row or column.

    What others do is not known here.
    """
    if not isinstance(remembered, Mapping):
        raise StateError(f"the outer optimiser's state of {name!r} is {type(remembered).__name__}")
    if not f"{type(shared.optimizer).__module__}.".startswith("torch.optim."):
        return
    shape = shared.parameters[name].shape
    for key, value in remembered.items():
        if value is None or isinstance(value, int | float):
            continue
        if not isinstance(value, Tensor) or not _spans(value.shape, shape):
            found = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise StateError(f"{key!r} of {name!r} was saved as {found}, which is {list(shape)}")


def _rehearse(saved: Mapping[str, Any], shared: SharedCopy) -> list[dict[str, Any]]:
    """Let the optimiser load it, and put back what it had: each has demands of its own.

    Returns the groups that it then had.
    """
    before = dict(vars(shared.optimizer))  # a load makes new groups and states, and leaves these
    try:
        shared.load_optimizer(saved)
        return shared.optimizer.param_groups
    except Exception as error:
        raise StateError(f"the outer optimiser refuses its state: {error!r}") from error
    finally:
        vars(shared.optimizer).update(before)


def _spans(saved: torch.Size, shape: torch.Size) -> bool:
    if len(saved) != len(shape):
        return not saved
    return all(n in (1, whole) for n, whole in zip(saved, shape, strict=True))
