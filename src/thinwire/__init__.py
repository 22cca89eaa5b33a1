"""thinwire trains PyTorch models data-parallel over slow networks.

It exchanges a small part of each gradient and keeps the rest for later:

    handle = thinwire.compress(ddp_model, thinwire.recipe("topk", density=0.01))
"""

import warnings
from collections.abc import Mapping
from typing import Any

from thinwire.cookbook import recipe, recipes
from thinwire.cookbook.registry import register
from thinwire.engine.synchronizer import Synchronizer
from thinwire.errors import (
    ClosedError,
    DisagreementError,
    ExchangeError,
    NonFiniteError,
    RecipeError,
    StateError,
    ThinwireError,
    WireFormatError,
)
from thinwire.frontends import (
    Handle,
    Optimizer,
    Outer,
    WrapHandle,
    compress,
    optim,
    outer,
    sparse_all_reduce,
    wrap,
)
from thinwire.pipeline import Pipeline
from thinwire.schedule import WarmUp
from thinwire.types import (
    Codec,
    Collective,
    ExchangeContext,
    Feedback,
    IndexCodec,
    LinearCodec,
    Reduced,
    Sparse,
    Sparsifier,
    StepContext,
    TensorSpec,
    ValueCodec,
)
from thinwire.version import VERSION

__version__ = VERSION

__all__ = [
    "ClosedError",
    "Codec",
    "Collective",
    "DisagreementError",
    "ExchangeContext",
    "ExchangeError",
    "Feedback",
    "Handle",
    "IndexCodec",
    "LinearCodec",
    "NonFiniteError",
    "Optimizer",
    "Outer",
    "Pipeline",
    "RecipeError",
    "Reduced",
    "Sparse",
    "Sparsifier",
    "StateError",
    "StepContext",
    "Synchronizer",
    "TensorSpec",
    "ThinwireError",
    "ValueCodec",
    "WarmUp",
    "WireFormatError",
    "WrapHandle",
    "compress",
    "optim",
    "outer",
    "recipe",
    "recipes",
    "register",
    "resolve",
    "sparse_all_reduce",
    "to_dict",
    "wrap",
]


def resolve(given: Pipeline | str | Mapping[str, Any]) -> Pipeline:
    """The name that `recipe` had for written recipes until version 0.2."""
    warnings.warn("use thinwire.recipe, which reads them too", DeprecationWarning, stacklevel=2)
    return recipe(given)


def to_dict(pipeline: Pipeline) -> dict[str, Any]:
    """The name that `Pipeline.to_dict` had until version 0.2."""
    warnings.warn("use the method Pipeline.to_dict", DeprecationWarning, stacklevel=2)
    return pipeline.to_dict()
