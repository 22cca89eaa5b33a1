"""Namespaces joined by veth pairs and a bridge, made by `holder.py` and asked for through it.

The bridge lives in a namespace of its own, so nothing reaches the host's network. Nothing has a
name outside: when the holder has ended, and with it the ranks, all is gone.
"""

import functools
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import Any

from thinwire.errors import LabError
from thinwire.lab import holder
from thinwire.lab.links import LinkShape

PREFIX = "thinwire"
MOST_NODES = 250  # as many descriptors as one message may carry
PATIENCE_S = 120.0  # for an answer of the holder, a slow transfer among them

_serials = itertools.count()


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of the cluster; over the loopback it is this machine."""

    index: int
    address: str
    interface: str


@dataclass(frozen=True, slots=True)
class LinkCount:
    """What the kernel counted at a node's interface.

    Headers count once for each packet the kernel handed over, and large ones are cut into many
    only afterwards: these are about 4 % less than what a real wire would carry.
    """

    node: int
    bytes_sent: int
    bytes_received: int
    packets_sent: int
    packets_received: int

    def __sub__(self, earlier: "LinkCount") -> "LinkCount":
        pairs = zip(astuple(self)[1:], astuple(earlier)[1:], strict=True)
        return LinkCount(self.node, *(late - early for late, early in pairs))


class HolderProcess:
    """The lab's end of the holder."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise LabError(f"network namespaces need Linux, and this is {sys.platform}")
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(PATIENCE_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", holder.__file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the lab
            )

    def ask(self, do: str, **request: Any) -> tuple[Any, list[int]]:
        """Its answer, and the descriptors that came along."""
        words, descriptors = b"", []
        with suppress(OSError):  # it may have ended, and said why
            self._socket.sendall((json.dumps({"do": do, **request}) + "\n").encode())
        while not words.endswith(b"\n"):
            piece, received, _, _ = socket.recv_fds(self._socket, 1 << 16, MOST_NODES + 1)
            descriptors += received
            words += piece
            if not piece:
                raise LabError(f"the holder of the lab's namespaces ended while asked to {do}")
        answer = json.loads(words)
        if "error" in answer:
            raise LabError(answer["error"])
        return answer, descriptors

    def close(self) -> None:
        """It ends with its socket."""
        self._socket.close()
        self._process.wait(timeout=PATIENCE_S)


class LabNetwork:
    """As many nodes as asked, each on a link of its own to one bridge."""

    def __init__(self, nodes: int, shape: LinkShape) -> None:
        if not 1 <= nodes <= MOST_NODES:
            raise LabError(f"nodes={nodes} must be from 1 to {MOST_NODES}")
        self.name = f"{PREFIX}-{os.getpid()}-{next(_serials)}"
        self.shape = shape
        addresses = (f"{holder.SUBNET}.{i + 1}" for i in range(nodes))
        self.nodes = [Node(i, a, holder.INTERFACE) for i, a in enumerate(addresses)]
        self._holder: HolderProcess | None = None
        self._user: int | None = None
        self._namespaces: list[int] = []

    def build(self) -> None:
        """Make it all, or raise `LabError` and leave nothing."""
        self._holder = HolderProcess()
        try:
            answer, self._namespaces = self._ask(
                "build",
                addresses=[node.address for node in self.nodes],
                at_the_node=self.shape.at_the_node(),
                at_the_port=self.shape.at_the_port(),
            )
            if answer["user"]:
                self._user = self._namespaces.pop(0)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Let go of what `build` made; may be called again. Processes inside must have ended."""
        if self._holder is not None:
            self._holder.close()
            self._holder = None
        while self._namespaces:
            os.close(self._namespaces.pop())
        if self._user is not None:
            os.close(self._user)
            self._user = None

    def entrance(self, node: Node) -> Callable[[], None]:
        """What brings a new process, while it has one thread, into a node."""
        user, namespace = self._user, self._namespaces[node.index]

        def enter() -> None:
            if user is not None:
                holder.setns(user, holder.CLONE_NEWUSER)
            holder.setns(namespace, holder.CLONE_NEWNET)

        return enter

    def change_link(self, node: Node, shape: LinkShape, up: bool = True) -> None:
        """Shape one node's link anew, or pull its cable at the bridge, whatever is under way."""
        ends = {"at_the_node": shape.at_the_node(), "at_the_port": shape.at_the_port()}
        self._ask("change", node=node.index, up=up, **ends)

    def count_links(self) -> list[LinkCount]:
        """The counters of the nodes' interfaces, since they were made."""
        counts = []
        for node, text in zip(self.nodes, self._ask("count")[0]["texts"], strict=True):
            sent, received = interface_bytes(text, node.interface)
            counts.append(LinkCount(node.index, sent[0], received[0], sent[1], received[1]))
        return counts

    def transfer_rate(self, source: Node, sink: Node, size: int, streams: int) -> float:
        """Payload bits per second, seen by the receiver, once a quarter has arrived."""
        ends = {"source": source.index, "sink": sink.index}
        rate: float = self._ask("transfer", **ends, size=size, streams=streams)[0]["rate"]
        return rate

    def _ask(self, do: str, **request: Any) -> tuple[Any, list[int]]:
        assert self._holder is not None
        return self._holder.ask(do, **request)


def interface_bytes(text: str, interface: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """(bytes, packets) sent and received, from the text of /proc/net/dev."""
    for line in text.splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == interface:
            counts = [int(number) for number in numbers.split()]
            return (counts[8], counts[9]), (counts[0], counts[1])
    raise LabError(f"no interface {interface} in /proc/net/dev")


@functools.cache
def refuse_without_means() -> None:
    """Raise `LabError` where namespaces cannot be made, with what is missing."""
    process = HolderProcess()
    try:
        process.ask("build", addresses=[], at_the_node=[], at_the_port=[])
    finally:
        process.close()
