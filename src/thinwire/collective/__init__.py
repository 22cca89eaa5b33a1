"""Collectives add up what the ranks selected."""

from thinwire.collective.allgather import AllGather
from thinwire.collective.dense import Dense
from thinwire.collective.gtopk import GTopK
from thinwire.collective.oktopk import OkTopK
from thinwire.collective.omnireduce import OmniReduce
from thinwire.collective.sketch import SketchAllReduce
from thinwire.collective.sparcml import SparCML
from thinwire.collective.union import UnionAllReduce

COLLECTIVES: dict[str, type] = {
    "dense": Dense,
    "allgather": AllGather,
    "gtopk": GTopK,
    "ok-topk": OkTopK,
    "sparcml": SparCML,
    "omnireduce": OmniReduce,
    "union": UnionAllReduce,
    "sketch-allreduce": SketchAllReduce,
}

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
