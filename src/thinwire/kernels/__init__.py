"""Operations that are worth more than one implementation.

Each lives in a folder of its own: `reference.py` says in plain torch what it computes, on any
device; `numba.py` and `triton.py` compute the same bits faster on the CPU and on CUDA. The
folder's `__init__.py` asks `chosen` which one to run, and imports only that one.
"""

import os
from importlib import import_module
from types import TracebackType
from typing import Any, Literal, get_args

import torch

from thinwire.errors import RecipeError

Implementation = Literal["reference", "numba", "triton"]

_FASTEST: dict[str, Implementation] = {"cpu": "numba", "cuda": "triton"}
_preferred: Implementation | None = None


class use:
    """Prefer one implementation from now on, or for a `with` block; None lets the device decide.

    >>> with use("reference"):
    ...     wire = codec.encode(selection, ctx)
    """

    def __init__(self, implementation: Implementation | None) -> None:
        global _preferred
        if implementation not in (None, *get_args(Implementation)):
            raise RecipeError(
                f"implementation={implementation!r} must be None or of {get_args(Implementation)}"
            )
        self._before, _preferred = _preferred, implementation

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _preferred
        _preferred = self._before


def implementation(package: str, device: torch.device, built: tuple[Implementation, ...]) -> Any:
    """The module of `package` that runs on `device`; imported when it is needed."""
    return import_module(f"{package}.{chosen(device, built)}")


def chosen(device: torch.device, built: tuple[Implementation, ...]) -> Implementation:
    """Which of an operation's `built` implementations runs on `device`.

    The preferred one where the operation has it and the device can run it, else the fastest.
    """
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    runs = {"reference": True, "numba": device.type == "cpu"}
    runs["triton"] = device.type == "cuda" or interpreted
    for candidate in (_preferred, _FASTEST.get(device.type)):
        if candidate in built and runs[candidate]:
            return candidate
    return "reference"
