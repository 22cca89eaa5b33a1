"""Does a link carry what was asked? One bounded TCP transfer tells."""

import socket
import threading
import time
from dataclasses import dataclass

from thinwire.lab.links import LinkShape
from thinwire.lab.namespaces import Node, entered

TOLERANCE = 0.1
TRIES = 3  # a filter cannot let too much through by chance; a busy machine lets too little
PROBE_S = 0.4
PORT = 29499
PATIENCE_S = 20.0
PAYLOAD_SHARE = 1448 / 1514  # of a full packet: Ethernet, IP and TCP headers take the rest
PIECE = bytes(64 * 1024)


@dataclass(frozen=True, slots=True)
class RateCheck:
    """Both in bit/s on the wire, headers included."""

    asked: float
    measured: float

    @property
    def off(self) -> float:
        """How far from the asked rate, as a part of it."""
        return abs(self.measured / self.asked - 1)

    @property
    def holds(self) -> bool:
        return self.off <= TOLERANCE

    def __str__(self) -> str:
        asked, measured = self.asked / 1e6, self.measured / 1e6
        return f"asked for {asked:.4g} Mbit/s, measured {measured:.4g} ({100 * self.off:.1f} % off)"


def check_rate(source: Node, sink: Node, shape: LinkShape) -> RateCheck:
    """The closest of a few transfers from one node to another."""
    assert shape.rate is not None
    # Many bursts, of which the first quarter is not timed: the full bucket must not flatter.
    size = max(int(shape.rate / 8 * PROBE_S), 8 * shape.burst_bytes)
    checks: list[RateCheck] = []
    while len(checks) < TRIES and not (checks and checks[-1].holds):
        rate = _transfer_rate(source, sink, size) / PAYLOAD_SHARE
        checks.append(RateCheck(shape.rate, rate))
    return min(checks, key=lambda check: check.off)


def _transfer_rate(source: Node, sink: Node, size: int) -> float:
    """Payload bits per second, seen by the receiver, once a quarter has arrived."""
    assert source.namespace is not None and sink.namespace is not None
    with entered(sink.namespace):
        listener = socket.create_server((sink.address, PORT))
    with listener:
        listener.settimeout(PATIENCE_S)
        with entered(source.namespace):
            outgoing = socket.create_connection((sink.address, PORT), timeout=PATIENCE_S)
        incoming, _ = listener.accept()
    with incoming:
        incoming.settimeout(PATIENCE_S)
        sender = threading.Thread(target=_send, args=(outgoing, size), daemon=True)
        sender.start()
        rate = _receive(incoming, size)
    sender.join()
    return rate


def _send(outgoing: socket.socket, size: int) -> None:
    with outgoing:
        while size > 0:
            size -= outgoing.send(PIECE[:size])


def _receive(incoming: socket.socket, size: int) -> float:
    """A transfer that takes too long is cut short: what came in that time is rate enough."""
    buffer = bytearray(1024 * 1024)
    deadline = time.perf_counter() + PATIENCE_S
    arrived, started, at_start = 0, 0.0, 0
    while arrived < size and time.perf_counter() < deadline:
        arrived += incoming.recv_into(buffer)
        if not started and arrived >= size // 4:
            started, at_start = time.perf_counter(), arrived
    took = time.perf_counter() - started
    return 8 * (arrived - at_start) / took if started else 0.0
