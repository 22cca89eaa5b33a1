"""Operations that are worth more than one implementation.

Each lives in a folder of its own. `reference.py` says in plain torch what it computes, on any
device; `numba.py` and `triton.py`, where there are such files, have the same functions with the
same arguments, and compute the same bits faster on the CPU and on CUDA. The folder's `__init__.py`
documents these functions for all three, checks what they are given, and asks `implementation` for
the one to run: only then is Numba or Triton imported.
"""

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Literal, TypeVar, get_args

import torch

from thinwire.errors import RecipeError

Implementation = Literal["reference", "numba", "triton"]
Function = TypeVar("Function", bound=Callable[..., Any])

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


def implementation(reference: Function, device: torch.device) -> Function:
    """What runs on `device` in the place of a function of some `reference.py`."""
    counterpart: Function = _counterpart(reference, device.type, _preferred)
    return counterpart


@cache  # every call of a kernel asks
def _counterpart(
    reference: Callable[..., Any], device_type: str, preferred: Implementation | None
) -> Any:
    package = reference.__module__.removesuffix(".reference")
    module = import_module(f"{package}.{_choose(package, device_type, preferred)}")
    return getattr(module, reference.__name__)


def chosen(package: str, device: torch.device) -> Implementation:
    """Which implementation of `thinwire.kernels.<package>` runs on `device`.

    The preferred one where the package has it and the device can run it, else the fastest.
    """
    return _choose(f"{__name__}.{package}", device.type, _preferred)


def _choose(package: str, device_type: str, preferred: Implementation | None) -> Implementation:
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    runs = {"reference": True, "numba": device_type == "cpu"}
    runs["triton"] = device_type == "cuda" or interpreted
    for candidate in (preferred, _FASTEST.get(device_type)):
        if candidate and runs[candidate] and find_spec(f"{package}.{candidate}"):
            return candidate
    return "reference"
