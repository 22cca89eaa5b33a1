"""thinwire trains PyTorch models data-parallel over slow networks.

It exchanges a small part of each gradient and keeps the rest for later:

    handle = thinwire.compress(ddp_model, thinwire.recipe("topk", density=0.01))
"""

from thinwire.cookbook import recipe, recipes, resolve
from thinwire.cookbook.notation import to_dict
from thinwire.engine.synchronizer import Synchronizer
from thinwire.errors import (
    DisagreementError,
    ExchangeError,
    NonFiniteError,
    RecipeError,
    ThinwireError,
    WireFormatError,
)
from thinwire.frontends import Handle, compress
from thinwire.frontends.functional import sparse_all_reduce
from thinwire.pipeline import Pipeline
from thinwire.schedule import WarmUp
from thinwire.types import Reduced, Sparse, StepContext, TensorSpec

__version__ = "0.1.0"

__all__ = [
    "DisagreementError",
    "ExchangeError",
    "Handle",
    "NonFiniteError",
    "Pipeline",
    "RecipeError",
    "Reduced",
    "Sparse",
    "StepContext",
    "Synchronizer",
    "TensorSpec",
    "ThinwireError",
    "WarmUp",
    "WireFormatError",
    "compress",
    "recipe",
    "recipes",
    "resolve",
    "sparse_all_reduce",
    "to_dict",
]
