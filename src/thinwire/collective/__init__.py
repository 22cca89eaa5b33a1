"""Collectives add up what the ranks selected; `comm` is their way to the network."""

from thinwire.collective.allgather import AllGather
from thinwire.collective.comm import GroupCommunicator, Traffic, Transfer
from thinwire.collective.dense import Dense
from thinwire.collective.gtopk import GTopK
from thinwire.collective.nodes import Nodes, node_size_of
from thinwire.collective.oktopk import OkTopk
from thinwire.collective.omnireduce import OmniReduce
from thinwire.collective.sketch import SketchAllReduce
from thinwire.collective.sparcml import SparCML
from thinwire.collective.union import UnionAllReduce

COLLECTIVES: dict[str, type] = {
    "dense": Dense,
    "allgather": AllGather,
    "gtopk": GTopK,
    "ok-topk": OkTopk,
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
    "GroupCommunicator",
    "Nodes",
    "OkTopk",
    "OmniReduce",
    "SketchAllReduce",
    "SparCML",
    "Traffic",
    "Transfer",
    "UnionAllReduce",
    "node_size_of",
]
