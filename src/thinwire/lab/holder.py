"""The process that holds a lab's namespaces, and works in them.

They have no names: they end when this process and the ranks inside have ended, whatever ended the
lab. An ordinary user's lie in a user namespace, which a process with threads may not enter, hence
a process of its own. It runs as a file, `python -P holder.py DESCRIPTOR`, so that it need not wait
for torch: it imports nothing of thinwire. Over the socket it reads one JSON object a line and
answers with one, and with the namespaces' descriptors after `build`; it ends with the socket.
"""

import ctypes
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

INTERFACE = "lab0"  # no host's: what programs read of it below /sys is then nothing, not another's
SUBNET = "10.77.0"  # no route leads out of the namespaces, so it cannot clash
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PORT = 29499
PATIENCE_S = 20.0
PIECE = memoryview(bytes(512 * 1024))
_NO_ADDRESS = {"attrs": [["AF_INET6", {"attrs": [["IFLA_INET6_ADDR_GEN_MODE", 1]]}]]}
_ON_LINK = 253  # scope of a route
_ETHERNET, _ACK_CREATE_ONLY, _NEW_QDISC, _ERROR = 1, 0x605, 36, 2
_ROOT, _NETEM, _BELOW_NETEM, _BUCKET = 0xFFFFFFFF, 0x10000, 0x10001, 0x100000

Request = dict[str, Any]
Answer = tuple[Request, list[int]]


class NoNetem(Exception):
    """The kernel does not know the qdisc."""


def unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def setns(descriptor: int, kind: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, kind):
        raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")


class Holder:
    """The hub's namespace is this process's own; each node has another."""

    def __init__(self) -> None:
        self.user: int | None = None
        try:
            unshare(CLONE_NEWNET)
        except PermissionError:
            self._become_root_of_its_own()
        self.hub = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.nodes: list[int] = []
        self.addresses: list[str] = []

    def _become_root_of_its_own(self) -> None:
        """A user namespace in which this process may do all, and is who it is outside."""
        user, group = os.geteuid(), os.getegid()
        unshare(CLONE_NEWUSER | CLONE_NEWNET)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        self.user = os.open("/proc/self/ns/user", os.O_RDONLY)

    @contextmanager
    def inside(self, node: int) -> Iterator[None]:
        """The calling thread is in the namespace; a socket made here stays there for life."""
        setns(self.nodes[node], CLONE_NEWNET)
        try:
            yield
        finally:
            setns(self.hub, CLONE_NEWNET)

    def build(self, request: Request) -> Answer:
        """A bridge; for each address a namespace, a cable to the bridge, and the qdiscs."""
        from pyroute2 import IPRoute

        self.addresses = request["addresses"]
        with IPRoute() as hub:
            hub.link("add", ifname="bridge0", kind="bridge", br_mcast_snooping=0)
            (bridge,) = hub.link_lookup(ifname="bridge0")
            hub.link("set", index=bridge, state="up", IFLA_AF_SPEC=_NO_ADDRESS)
            for number, address in enumerate(self.addresses):
                self._join(hub, bridge, number, address)
                for qdisc in request["at_the_port"]:
                    add_qdisc(hub, f"port{number}", qdisc)
                with self.inside(number), IPRoute() as here:
                    for qdisc in request["at_the_node"]:
                        add_qdisc(here, INTERFACE, qdisc)
        user = [] if self.user is None else [self.user]
        return {"user": bool(user)}, [*user, *self.nodes]

    def _join(self, hub: Any, bridge: int, number: int, address: str) -> None:
        from pyroute2 import IPRoute

        unshare(CLONE_NEWNET)
        self.nodes.append(os.open("/proc/self/ns/net", os.O_RDONLY))
        with IPRoute() as here:
            setns(self.hub, CLONE_NEWNET)
            peer = {"ifname": INTERFACE, "net_ns_fd": self.nodes[number]}
            hub.link("add", ifname=f"port{number}", kind="veth", peer=peer)
            (port,) = hub.link_lookup(ifname=f"port{number}")
            hub.link("set", index=port, master=bridge, state="up", IFLA_AF_SPEC=_NO_ADDRESS)
            (own,) = here.link_lookup(ifname=INTERFACE)
            here.link("set", index=1, state="up")
            # No IPv6 chatter in the counters.
            here.link("set", index=own, state="up", IFLA_AF_SPEC=_NO_ADDRESS)
            here.addr("add", index=own, address=address, prefixlen=24)
            _ask_for_cubic(here, own, address)

    def change(self, request: Request) -> Answer:
        """Other qdiscs at both ends of a node's link, and whether it is plugged in."""
        from pyroute2 import IPRoute

        node, state = request["node"], "up" if request["up"] else "down"
        with IPRoute() as hub:
            hub.link("set", index=hub.link_lookup(ifname=f"port{node}")[0], state=state)
            replace_qdiscs(hub, f"port{node}", request["at_the_port"])
        with self.inside(node), IPRoute() as here:
            replace_qdiscs(here, INTERFACE, request["at_the_node"])
        return {}, []

    def count(self, request: Request) -> Answer:
        """The text of /proc/net/dev in each node."""
        texts = []
        for node in range(len(self.nodes)):
            with self.inside(node):
                texts.append(Path("/proc/thread-self/net/dev").read_text())
        return {"texts": texts}, []

    def transfer(self, request: Request) -> Answer:
        """Payload bits per second from one node to another, over so many streams at once."""
        source, sink = request["source"], request["sink"]
        with ExitStack() as sockets:
            with self.inside(sink):
                listener = sockets.enter_context(
                    socket.create_server((self.addresses[sink], PORT), backlog=request["streams"])
                )
            listener.settimeout(PATIENCE_S)
            pairs = []
            for _ in range(request["streams"]):
                with self.inside(source):
                    outgoing = socket.create_connection(listener.getsockname(), PATIENCE_S)
                incoming, _ = listener.accept()
                incoming.settimeout(PATIENCE_S)
                pairs.append(
                    (sockets.enter_context(outgoing), sockets.enter_context(incoming)),
                )
            return {"rate": Transfer(request["size"]).rate(pairs)}, []


class Transfer:
    """So many bytes over several connections; what is timed is all but the first quarter."""

    def __init__(self, size: int) -> None:
        self.size = self.unsent = size
        self.arrived, self.at_start = 0, 0
        self.started, self.ended = 0.0, 0.0
        self.deadline = time.perf_counter() + PATIENCE_S
        self.lock = threading.Lock()

    def rate(self, pairs: list[tuple[socket.socket, socket.socket]]) -> float:
        threads = [
            threading.Thread(target=work, args=(end,), daemon=True)
            for outgoing, incoming in pairs
            for work, end in ((self._send, outgoing), (self._receive, incoming))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = self.ended - self.started
        return 8 * (self.arrived - self.at_start) / took if self.started and took else 0.0

    def _send(self, outgoing: socket.socket) -> None:
        """All connections draw on one budget: none is left behind to finish alone."""
        while True:
            with self.lock:
                piece = min(len(PIECE), self.unsent)
                self.unsent -= piece
            if not piece or time.perf_counter() > self.deadline:
                outgoing.shutdown(socket.SHUT_WR)
                return
            outgoing.sendall(PIECE[:piece])

    def _receive(self, incoming: socket.socket) -> None:
        """A transfer that takes too long is cut short: what came in that time is rate enough."""
        buffer = bytearray(len(PIECE))
        while count := incoming.recv_into(buffer):
            now = time.perf_counter()
            with self.lock:
                self.arrived += count
                if not self.started and self.arrived >= self.size // 4:
                    self.started, self.at_start = now, self.arrived
                self.ended = now


def _ask_for_cubic(here: Any, own: int, address: str) -> None:
    """The host's congestion control is inherited, whatever it is: ask for the usual one."""
    from pyroute2 import NetlinkError

    route = {"dst": f"{SUBNET}.0/24", "oif": own, "prefsrc": address, "scope": _ON_LINK}
    try:
        here.route("replace", **route, metrics={"attrs": [["RTAX_CC_ALGO", "cubic"]]})
    except NetlinkError:
        return  # this kernel has none, and its own will do


def replace_qdiscs(here: Any, interface: str, qdiscs: list[Request]) -> None:
    """What there was is gone, and the packets that waited in it."""
    from pyroute2 import NetlinkError

    with suppress(NetlinkError):  # there was none
        here.tc("del", index=here.link_lookup(ifname=interface)[0], parent=_ROOT)
    for qdisc in qdiscs:
        add_qdisc(here, interface, qdisc)


def add_qdisc(here: Any, interface: str, qdisc: Request) -> None:
    """Netem at the root, a token bucket at the root or below netem."""
    (index,) = here.link_lookup(ifname=interface)
    if qdisc["kind"] == "netem":
        settings = {"delay": qdisc["delay_us"], "loss": qdisc["loss_percent"], "limit": 100_000}
        try:
            here.tc("add", "netem", index, handle=_NETEM, **settings)
        except Exception as error:
            raise NoNetem(error) from None
        return
    add_bucket(index, qdisc["below_netem"], qdisc["rate"], qdisc["burst"], qdisc["limit"])


def add_bucket(index: int, below_netem: bool, rate: int, burst: int, limit: int) -> None:
    """tbf, by hand: rates above 34 Gbit/s need an attribute that pyroute2 does not know."""
    bytes_per_s = rate // 8
    spec = struct.pack("=BBHhHI", 0, _ETHERNET, 0, 0, 0, min(bytes_per_s, 0xFFFFFFFF))
    parameters = spec + bytes(12) + struct.pack("=III", limit, 0, 0)
    options = _attribute(1, parameters) + _attribute(6, struct.pack("=I", burst))
    if bytes_per_s > 0xFFFFFFFF:
        options += _attribute(4, struct.pack("=Q", bytes_per_s))
    handle, parent = (_BUCKET, _BELOW_NETEM) if below_netem else (0, _ROOT)
    body = struct.pack("=BBHiIII", 0, 0, 0, index, handle, parent, 0)
    body += _attribute(1, b"tbf\0") + _attribute(2, options)
    header = struct.pack("=IHHII", 16 + len(body), _NEW_QDISC, _ACK_CREATE_ONLY, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(PATIENCE_S)
        netlink.sendto(header + body, (0, 0))
        answer = netlink.recv(65536)
    kind, code = struct.unpack_from("=H", answer, 4)[0], struct.unpack_from("=i", answer, 16)[0]
    if kind == _ERROR and code:
        raise OSError(-code, f"token bucket of {rate} bit/s: {os.strerror(-code)}")


def _attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def answer_to(work: Callable[[], Answer]) -> Answer:
    """What came of it, or why nothing did."""
    try:
        return work()
    except ImportError as error:
        return {"error": f"the lab needs {error.name}: pip install 'thinwire[lab]'"}, []
    except NoNetem as error:
        return {"error": f"delay and loss need netem, which this kernel lacks: {error}"}, []
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}, []


def main(descriptor: int) -> None:
    with socket.socket(fileno=descriptor) as lab:
        try:
            holder = Holder()
        except OSError as error:
            why = f"network namespaces need root, or user namespaces, and here are neither: {error}"
            lab.sendall((json.dumps({"error": why}) + "\n").encode())
            return
        work = {name: getattr(holder, name) for name in ("build", "change", "count", "transfer")}
        with suppress(BrokenPipeError, ConnectionResetError):  # ended before it had an answer
            for line in lab.makefile():
                request = json.loads(line)
                answer, descriptors = answer_to(lambda r=request: work[r["do"]](r))  # type: ignore[misc]
                socket.send_fds(lab, [(json.dumps(answer) + "\n").encode()], descriptors)


if __name__ == "__main__":
    main(int(sys.argv[1]))
