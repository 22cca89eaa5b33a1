"""The way to the network: one rank's end of a group, and groups inside and between nodes."""

from thinwire.comm.communicator import GroupCommunicator
from thinwire.comm.groups import check_initialized
from thinwire.comm.messages import Traffic, Transfer
from thinwire.comm.nodes import Nodes, node_size_of

__all__ = [
    "GroupCommunicator",
    "Nodes",
    "Traffic",
    "Transfer",
    "check_initialized",
    "node_size_of",
]
