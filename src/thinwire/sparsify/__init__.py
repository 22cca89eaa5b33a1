"""Sparsifiers: which elements of a gradient travel. One per file; the contract is in `types`."""

from thinwire.sparsify.block import BlockTopK
from thinwire.sparsify.everything import Everything
from thinwire.sparsify.gaussian import GaussianK
from thinwire.sparsify.hashed import HashedSlots
from thinwire.sparsify.multistage import MultiStage
from thinwire.sparsify.nonzero import Nonzero
from thinwire.sparsify.random import RandomK
from thinwire.sparsify.reuse import ReusedThreshold
from thinwire.sparsify.sampled import SampledThreshold
from thinwire.sparsify.topk import TopK
from thinwire.types import Sparsifier

SPARSIFIERS: tuple[type[Sparsifier], ...] = (
    Everything,
    Nonzero,
    TopK,
    SampledThreshold,
    HashedSlots,
    ReusedThreshold,
    GaussianK,
    MultiStage,
    RandomK,
    BlockTopK,
)

__all__ = [
    "SPARSIFIERS",
    "BlockTopK",
    "Everything",
    "GaussianK",
    "HashedSlots",
    "MultiStage",
    "Nonzero",
    "RandomK",
    "ReusedThreshold",
    "SampledThreshold",
    "TopK",
]
