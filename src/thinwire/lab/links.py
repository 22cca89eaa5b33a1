"""What a link does to traffic, and the qdiscs that make it so."""

import re
from dataclasses import dataclass
from typing import Any

from thinwire.errors import LabError

_BITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

# The burst travels at once, so it is as small as the rate allows: of 2 ms 1 Gbit/s makes 250 KB,
# which reaches the full rate where 32 KB reach half of it. From 8 Gbit/s on 2 MB suffice, as long
# as they are half a millisecond's.
BURST_S = 0.002
SMALLEST_BURST = 16 * 1024
LARGE_BURST = 2_000_000
LEAST_BURST_S = 0.0005
QUEUE_S = 0.05  # what a port can hold before it drops
SMALLEST_QUEUE = 128 * 1024  # two of the largest packets that the kernel hands over at once

Qdisc = dict[str, Any]
"""As `holder.py` reads it."""


@dataclass(frozen=True, slots=True)
class LinkShape:
    """Rate in bit/s (None: as fast as it goes), burst in bytes, delay one way, loss in percent."""

    rate: int | None = None
    burst: int | None = None
    delay_s: float = 0.0
    loss_percent: float = 0.0

    def __post_init__(self) -> None:
        if self.rate is not None and self.rate <= 0:
            raise LabError(f"rate={self.rate} bit/s must be positive")
        if self.burst is not None and self.burst < 2000:
            raise LabError(f"burst={self.burst} bytes must hold at least one packet (2000)")
        if self.delay_s < 0 or not 0 <= self.loss_percent < 100:
            raise LabError("delay must not be negative, and loss must be in [0, 100) percent")

    @property
    def burst_bytes(self) -> int:
        """As asked, or the smallest that reaches the rate."""
        if self.burst is not None:
            return self.burst
        per_s = (self.rate or 0) / 8
        usual = min(per_s * BURST_S, LARGE_BURST)
        return int(max(SMALLEST_BURST, usual, per_s * LEAST_BURST_S))

    def at_the_port(self) -> list[Qdisc]:
        """The qdiscs of the hub's end: towards the node."""
        return [self._bucket()] if self.rate else []

    def at_the_node(self) -> list[Qdisc]:
        """The qdiscs of the node's end: delay and loss once per direction, then the rate."""
        if not (self.delay_s or self.loss_percent):
            return self.at_the_port()
        delay_us = round(self.delay_s * 1e6)
        netem = {"kind": "netem", "delay_us": delay_us, "loss_percent": self.loss_percent}
        return [netem, self._bucket(below_netem=True)] if self.rate else [netem]

    def _bucket(self, below_netem: bool = False) -> Qdisc:
        assert self.rate is not None
        limit = max(SMALLEST_QUEUE, int(self.rate / 8 * QUEUE_S)) + self.burst_bytes
        sizes = {"rate": self.rate, "burst": self.burst_bytes, "limit": limit}
        return {"kind": "tbf", "below_netem": below_netem, **sizes}


def bits_per_second(text: str) -> int:
    """1gbit, 100mbit, 2.5Gbit/s; as tc writes rates.

    >>> bits_per_second("2.5gbit")
    2500000000
    """
    match = re.fullmatch(r"([0-9.]+)\s*([kmg]?)bit(/s|ps)?", text.strip().lower())
    if match is None or match[1].count(".") > 1 or match[1] == ".":
        raise LabError(f"rate {text!r}: write a number and a unit, as in 1gbit or 100mbit")
    return round(float(match[1]) * _BITS[match[2]])


def seconds(text: str) -> float:
    """5ms, 200us, 1s.

    >>> seconds("5ms")
    0.005
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s)", text.strip().lower())
    if match is None:
        raise LabError(f"delay {text!r}: write a number and a unit, as in 5ms")
    return float(match[1]) * _SECONDS[match[2]]
