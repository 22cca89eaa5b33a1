"""Namespaces joined by veth pairs and a bridge. Everything is made here, and removed here.

The bridge lives in a namespace of its own, so nothing reaches the host's network, and removing
the namespaces removes all: links, addresses and filters go with them.
"""

import ctypes
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from thinwire.errors import LabError
from thinwire.lab.links import LinkShape

PREFIX = "thinwire"
INTERFACE = "eth0"
SUBNET = "10.77.0"  # no route leads out of the namespaces, so it cannot clash
MOST_NODES = 250
NAMESPACES = Path("/run/netns")
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
CLONE_NEWNET = 0x40000000

_serials = itertools.count()


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of the cluster. Without a namespace it is this machine, over the loopback."""

    index: int
    address: str
    interface: str
    namespace: str | None = None

    def command(self, argv: list[str]) -> list[str]:
        """`argv`, to run inside."""
        if self.namespace is None:
            return argv
        return [tool("ip"), "netns", "exec", self.namespace, *argv]


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


class LabNetwork:
    """As many nodes as asked, each on a link of its own to one bridge."""

    def __init__(self, nodes: int, shape: LinkShape) -> None:
        if not 1 <= nodes <= MOST_NODES:
            raise LabError(f"nodes={nodes} must be from 1 to {MOST_NODES}")
        self.name = f"{PREFIX}-{os.getpid()}-{next(_serials)}"
        self.hub = f"{self.name}-hub"
        self.shape = shape
        self.nodes = [
            Node(i, f"{SUBNET}.{i + 1}", INTERFACE, f"{self.name}-{i}") for i in range(nodes)
        ]
        self._namespaces: list[str] = []

    def build(self) -> None:
        """Make it all, or raise `LabError` and leave nothing."""
        refuse_without_means()
        remove_stale()
        try:
            self._add_namespace(self.hub)
            ip(self.hub, "link add bridge0 type bridge mcast_snooping 0")
            ip(self.hub, "link set bridge0 addrgenmode none up")
            for node in self.nodes:
                self._join(node)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove what `build` made. Processes inside must have ended."""
        while self._namespaces:
            _run([tool("ip"), "netns", "del", self._namespaces[-1]], may_fail=True)
            self._namespaces.pop()

    def _add_namespace(self, name: str) -> None:
        self._namespaces.append(name)  # first: an interrupt may come in between
        _run([tool("ip"), "netns", "add", name])

    def _join(self, node: Node) -> None:
        """A namespace, a cable to the bridge, an address, and filters on both ends."""
        assert node.namespace is not None
        inside, port = node.namespace, f"port{node.index}"
        self._add_namespace(inside)
        ip(self.hub, f"link add {port} type veth peer name {INTERFACE} netns {inside}")
        ip(self.hub, f"link set {port} master bridge0 addrgenmode none up")
        ip(inside, "link set lo up")
        ip(inside, f"link set {INTERFACE} addrgenmode none up")  # no IPv6 chatter in the counters
        ip(inside, f"address add {node.address}/24 dev {INTERFACE}")
        # The host's congestion control is inherited, whatever it is: ask for the usual one.
        route = f"route replace {SUBNET}.0/24 dev {INTERFACE} src {node.address}"
        ip(inside, f"{route} congctl cubic", may_fail=True)
        for qdisc in self.shape.at_the_node():
            tc(inside, INTERFACE, qdisc)
        for qdisc in self.shape.at_the_port():
            tc(self.hub, port, qdisc)


def count_link(node: Node) -> LinkCount:
    """The counters of a node's interface, since it was made."""
    assert node.namespace is not None
    with entered(node.namespace):
        text = Path("/proc/thread-self/net/dev").read_text()
    sent, received = interface_bytes(text, node.interface)
    return LinkCount(node.index, sent[0], received[0], sent[1], received[1])


def interface_bytes(text: str, interface: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """(bytes, packets) sent and received, from the text of /proc/net/dev."""
    for line in text.splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == interface:
            counts = [int(number) for number in numbers.split()]
            return (counts[8], counts[9]), (counts[0], counts[1])
    raise LabError(f"no interface {interface} in /proc/net/dev")


@contextmanager
def entered(namespace: str) -> Iterator[None]:
    """The calling thread is in the namespace; a socket made here stays there for life."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(descriptor: int) -> None:
        if libc.setns(descriptor, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    here = Path("/proc/thread-self/ns/net")
    with here.open() as home, (NAMESPACES / namespace).open() as there:
        enter(there.fileno())
        try:
            yield
        finally:
            enter(home.fileno())


def refuse_without_means() -> None:
    """Raise `LabError` where namespaces cannot be made, with what is missing."""
    if sys.platform != "linux":
        raise LabError(f"network namespaces need Linux, and this is {sys.platform}")
    if os.geteuid() != 0:
        raise LabError("network namespaces need root")
    for name in ("ip", "tc"):
        tool(name)


def remove_stale() -> None:
    """Remove what labs left behind that were killed outright: their process is no more."""
    for path in NAMESPACES.glob(f"{PREFIX}-*"):
        match = re.match(rf"{PREFIX}-(\d+)-\d+-", path.name)
        if match and not Path(f"/proc/{match[1]}").exists():
            _run([tool("ip"), "netns", "del", path.name], may_fail=True)


def ip(namespace: str, command: str, may_fail: bool = False) -> None:
    _run([tool("ip"), "-n", namespace, *command.split()], may_fail)


def tc(namespace: str, interface: str, qdisc: list[str]) -> None:
    try:
        _run([tool("tc"), "-n", namespace, "qdisc", "add", "dev", interface, *qdisc])
    except LabError as error:
        if "netem" in qdisc:
            raise LabError(f"delay and loss need netem, which this kernel lacks: {error}") from None
        raise


def tool(name: str) -> str:
    """Where a program is; root's own folders count too."""
    path = shutil.which(name, path=SEARCH_PATH)
    if path is None:
        raise LabError(f"there is no `{name}` here; it comes with the package iproute2")
    return path


def _run(argv: list[str], may_fail: bool = False) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    if done.returncode and not may_fail:
        said = " ".join((done.stderr or done.stdout).split())
        raise LabError(f"`{Path(argv[0]).name} {' '.join(argv[1:])}` failed: {said}")
