"""Collectives add up what the ranks selected; `comm` is their way to the network."""

from thinwire.collective.allgather import AllGather
from thinwire.collective.comm import GroupCommunicator, Traffic
from thinwire.collective.dense import Dense
from thinwire.collective.nodes import Nodes, node_size_of

COLLECTIVES = {"dense": Dense, "allgather": AllGather}

__all__ = [
    "COLLECTIVES",
    "AllGather",
    "Dense",
    "GroupCommunicator",
    "Nodes",
    "Traffic",
    "node_size_of",
]
