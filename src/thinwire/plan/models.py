"""The model to plan for: a known one by name, or the user's own as `module:function`."""

import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from torch import nn

from thinwire.errors import ThinwireError
from thinwire.settings import near
from thinwire.workloads.compute import declared_compute
from thinwire.workloads.shapes import MODELS, Shape, multiply_adds, shapes


@dataclass(frozen=True, slots=True)
class Model:
    """Parameters in the order of the forward pass; how work is spread, where that is known."""

    name: str
    shapes: Mapping[str, Shape]
    work: Mapping[str, int] | None = None
    compute: float = 0.0  # seconds per step; declared for known models, 0 for others

    @property
    def numel(self) -> int:
        """All parameters together."""
        return sum(map(prod, self.shapes.values()))

    def taking(self, compute: float | None) -> "Model":
        """The same with the compute that a user gave, if one did."""
        return self if compute is None else replace(self, compute=compute)


def find_model(name: str) -> Model:
    """`resnet50`, or `module:function`, which returns an `nn.Module` or a dict of shapes."""
    if ":" not in name:
        if name.endswith(".py"):
            raise ThinwireError(
                f"{name!r} is a script: thinwire doctor -- {name} runs it and looks at its model; "
                "a model is named as module:function"
            )
        if name not in MODELS:
            raise ThinwireError(
                f"unknown model {name!r}{near(name, MODELS)}; there are {', '.join(MODELS)}, or "
                "your own as module:function, which returns an nn.Module or a dict of shapes"
            )
        return Model(name, shapes(name), multiply_adds(name), declared_compute(name))
    return Model(name, _own_shapes(name))


def _own_shapes(name: str) -> dict[str, Shape]:
    path, _, function = name.partition(":")
    sys.path.insert(0, "")  # the user's module lies where the command is run
    try:
        make = getattr(importlib.import_module(path), function)
        inspect.signature(make).bind()
    except (ImportError, AttributeError) as error:
        raise ThinwireError(f"no model at {name!r}: {error}") from error
    except (TypeError, ValueError) as error:
        raise ThinwireError(f"{name!r} must be a function without arguments: {error}") from error
    finally:
        sys.path.remove("")
    model = make()
    if isinstance(model, nn.Module):
        return {n: tuple(p.shape) for n, p in model.named_parameters() if p.requires_grad}
    try:
        shapes = {str(n): tuple(map(int, shape)) for n, shape in model.items()}
    except (AttributeError, TypeError, ValueError):
        shapes = {}
    if not shapes:
        raise ThinwireError(
            f"{name!r} returned {model!r:.80}: an nn.Module or a dict of shapes was due"
        )
    return shapes
