"""Measured numbers kept on disk, by what they depend on: hardware, world size and versions."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import torch

from thinwire.files import from_json, whole
from thinwire.machine import describe_machine
from thinwire.rng import fingerprint
from thinwire.types import Communicator

Plain = dict[str, Any]
FORMAT = 3
_IDENTITY = ("system", "cpu", "cores", "torch", "thinwire")


def identity_of(device: torch.device, workers: int, backend: str) -> Plain:
    """What measured numbers hold for."""
    machine = describe_machine()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    known = {key: machine[key] for key in _IDENTITY}
    return known | {"device": name, "workers": workers, "backend": backend, "format": FORMAT}


def place(identity: Plain) -> Path:
    """The file for such an identity, in the user's cache folder (XDG)."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = fingerprint(json.dumps(identity, sort_keys=True)) & (1 << 64) - 1
    return base / "thinwire" / f"costs-{name:016x}.json"


def read(identity: Plain) -> Plain | None:
    """What was kept; None if nothing was, or if the file is not what `write` makes (a warning)."""
    path = place(identity)
    try:
        content = from_json(path.read_text(encoding="utf-8"))
        if content["identity"] != identity or not isinstance(content["measured"], dict):
            raise ValueError("it is of another machine")
        measured: Plain = content["measured"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        warnings.warn(f"{path} is ignored and will be measured anew: {error}", stacklevel=2)
        return None
    return measured


def write(identity: Plain, measured: Plain) -> None:
    """Keep it, whole or not at all. A folder that cannot be written is no reason to fail."""
    path = place(identity)
    content = json.dumps({"identity": identity, "measured": measured})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as beside:  # ranks may write at the same time
            beside.write_text(content, encoding="utf-8")
    except OSError as error:
        warnings.warn(f"measured costs were not kept: {error}", stacklevel=2)


def read_agreed(identity: Plain, comm: Communicator) -> Plain | None:
    """What all ranks have kept alike; None if one has nothing or something else."""
    measured = read(identity)
    mark = 0 if measured is None else fingerprint(json.dumps(measured, sort_keys=True))
    marks = {mark for (mark,) in comm.all_gather_meta([mark])}
    return measured if len(marks) == 1 and mark else None
