"""Sparsifiers: which elements of a gradient travel. One per file; the contract is in `types`."""

from thinwire.sparsify.block import BlockTopK as BlockTopK
from thinwire.sparsify.chunks import ChunkTopK as ChunkTopK
from thinwire.sparsify.everything import Everything as Everything
from thinwire.sparsify.gaussian import GaussianK as GaussianK
from thinwire.sparsify.hashed import HashedSlots as HashedSlots
from thinwire.sparsify.multistage import MultiStage as MultiStage
from thinwire.sparsify.nonzero import Nonzero as Nonzero
from thinwire.sparsify.partition import PartitionTopK as PartitionTopK
from thinwire.sparsify.random import RandomK as RandomK
from thinwire.sparsify.reuse import ReusedThreshold as ReusedThreshold
from thinwire.sparsify.sampled import SampledThreshold as SampledThreshold
from thinwire.sparsify.topk import TopK as TopK
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
    ChunkTopK,
    PartitionTopK,
)
