"""Collectives add up what the ranks selected; `comm` is their way to the network."""

from thinwire.collective.allgather import AllGather
from thinwire.collective.comm import GroupCommunicator, Traffic
from thinwire.collective.dense import Dense

COLLECTIVES = {"dense": Dense, "allgather": AllGather}

__all__ = ["COLLECTIVES", "AllGather", "Dense", "GroupCommunicator", "Traffic"]
