"""What a message costs: α seconds to start it and β seconds for each byte, by kind of link."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from thinwire.errors import ThinwireError
from thinwire.format import duration
from thinwire.settings import check_integer, check_range


@dataclass(frozen=True, slots=True)
class Link:
    """A rank's way to its peers, both directions at once.

    A round in which a rank sends m messages together takes α + (m - 1)·`overhead`, and β for each
    byte. The papers let every message cost α: `overhead` = α, the default. Messages that leave
    together wait for the wire together, and only what the processor spends on each adds up; that
    is what calibration finds (LogP's o).
    """

    alpha: float  # seconds per message
    beta: float  # seconds per byte
    overhead: float | None = None  # seconds for each further message of a round

    def __post_init__(self) -> None:
        check_range("alpha", self.alpha, 0, open_high=True)
        check_range("beta", self.beta, 0, open_high=True)
        if self.overhead is not None:
            check_range("overhead", self.overhead, 0, open_high=True)

    @classmethod
    def of(cls, gbps: float, latency: float) -> Self:
        """A link of so many Gbit/s, and so many seconds from end to end.

        >>> Link.of(gbps=10, latency=50e-6)
        Link(alpha=5e-05, beta=8e-10, overhead=None)
        """
        check_range("gbps", gbps, 0, open_low=True)
        return cls(latency, 8 / (gbps * 1e9))

    def seconds(self, rounds: float, messages: float, sent: float) -> float:
        """So many rounds one after the other, with so many messages and bytes in all of them."""
        overhead = self.alpha if self.overhead is None else self.overhead
        return rounds * self.alpha + max(0.0, messages - rounds) * overhead + sent * self.beta


@dataclass(frozen=True, slots=True)
class Network:
    """Links between ranks; where a node has several ranks, between nodes and inside of them.

    `ring` is the backend's own allreduce, measured: it also adds up, in the time of its bytes.
    Without it, an allreduce is a ring of messages over `link`.

    `spread` is how far a single exchange may be off, as a share of its time.

    `backend` says how exchanges run: one after the other and in messages from rank to rank
    ("gloo"), or several units at once, in the ring of the backend's collectives ("nccl").
    """

    link: Link
    ring: Link | None = None
    inside: Link | None = None
    node_size: int = 1
    spread: float = 0.15  # of a network that is given, not measured
    backend: str = "gloo"

    def __post_init__(self) -> None:
        check_integer("node_size", self.node_size, 1)
        if self.node_size > 1 and self.inside is None:
            raise ThinwireError(f"node_size={self.node_size} needs the link inside a node")

    @property
    def within(self) -> "Network":
        """The network that the ranks of one node have among them."""
        assert self.inside is not None
        return Network(self.inside, spread=self.spread, backend=self.backend)

    def __str__(self) -> str:
        """Gbit/s, and α.

        >>> print(Network(Link.of(gbps=10, latency=50e-6)))
        10 Gbit/s, 50 µs a message
        """
        rate = f"{8e-9 / self.link.beta:.3g} Gbit/s" if self.link.beta else "no limit"
        words = f"{rate}, {duration(self.link.alpha)} a message"
        return words if self.node_size == 1 else f"{words}, nodes of {self.node_size}"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """What `to_dict` was called on."""
        links = {
            name: None if plain[name] is None else Link(**plain[name])
            for name in ("link", "ring", "inside")
        }
        return cls(**(plain | links))
