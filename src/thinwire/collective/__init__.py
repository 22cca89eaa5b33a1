"""Collectives add up what the ranks selected. One per file; the contract is in `types`."""

from thinwire.collective.allgather import AllGather
from thinwire.collective.dense import Dense
from thinwire.collective.gtopk import GTopK
from thinwire.collective.oktopk import OkTopK
from thinwire.collective.omnireduce import OmniReduce
from thinwire.collective.sketch import SketchAllReduce
from thinwire.collective.sparcml import SparCML
from thinwire.collective.union import UnionAllReduce
from thinwire.types import Collective

COLLECTIVES: tuple[type[Collective], ...] = (
    Dense,
    AllGather,
    GTopK,
    OkTopK,
    SparCML,
    OmniReduce,
    UnionAllReduce,
    SketchAllReduce,
)

__all__ = [
    "COLLECTIVES",
    "AllGather",
    "Dense",
    "GTopK",
    "OkTopK",
    "OmniReduce",
    "SketchAllReduce",
    "SparCML",
    "UnionAllReduce",
]
