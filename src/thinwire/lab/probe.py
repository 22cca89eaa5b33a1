"""Does a link carry what was asked? A bounded TCP transfer tells."""

import math
from dataclasses import dataclass

from thinwire.lab.namespaces import LabNetwork, Node

TOLERANCE = 0.1
TRIES = 3  # a filter cannot let too much through by chance; a busy machine lets too little
PROBE_S = 0.4
LARGEST = 1 << 30  # bytes, which is time enough for any rate
STREAM_RATE = 5e9  # bit/s that one connection is sure to carry
MOST_STREAMS = 8
PAYLOAD_SHARE = 1448 / 1514  # of a full packet: Ethernet, IP and TCP headers take the rest


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
        asked, measured = _megabits(self.asked), _megabits(self.measured)
        return f"asked for {asked} Mbit/s, measured {measured} ({100 * self.off:.1f} % off)"


def _megabits(rate: float) -> str:
    megabits = rate / 1e6
    return f"{megabits:.4g}" if megabits < 1e4 else f"{megabits:.0f}"


def check_rate(network: LabNetwork, source: Node, sink: Node, rate: int) -> RateCheck:
    """The closest of a few transfers from one node to another."""
    # Many bursts, of which the first quarter is not timed: the full bucket must not flatter.
    size = max(min(int(rate / 8 * PROBE_S), LARGEST), 8 * network.shape.burst_bytes)
    streams = min(MOST_STREAMS, math.ceil(rate / STREAM_RATE))
    checks: list[RateCheck] = []
    while len(checks) < TRIES and not (checks and checks[-1].holds):
        measured = network.transfer_rate(source, sink, size, streams) / PAYLOAD_SHARE
        checks.append(RateCheck(rate, measured))
    return min(checks, key=lambda check: check.off)
