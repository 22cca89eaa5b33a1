"""One exchange: what it is asked to do, and what it comes to in rounds, messages and bytes."""

from dataclasses import dataclass

from thinwire.comm.messages import LENGTH, ring_bytes, rounds
from thinwire.cost.network import Network
from thinwire.settings import target_count

FRAME = 3 * 48  # bytes of Gloo's for a message: to offer it, to ask for it, and ahead of it
SEGMENTS = 2  # into which Gloo's ring cuts the share of a rank, at least


@dataclass(frozen=True, slots=True)
class Load:
    """One exchange: who takes part, and what each brings.

    `alike` is the share of a rank's selection that is also everyone else's; the rest is chosen
    independently. `width` elements are selected together (blocks). Dense selections have k = n.
    Over "nccl" all ranks know all sizes, and nobody tells them. `shapes` are those of the unit's
    tensors, where they are known. Tensors of the sizes `apart` share a payload in which each is
    encoded by itself; what else there is travels in it as it is.
    """

    workers: int
    n: int
    k: float
    alike: float = 0.0
    width: int = 1
    backend: str = "gloo"
    shapes: tuple[tuple[int, ...], ...] = ()
    apart: tuple[int, ...] = ()

    @property
    def dense(self) -> bool:
        """Whether everything travels, without indices."""
        return self.k >= self.n

    def union(self, things: float, selected: float) -> float:
        """How many of so many things any rank selects, if each selects `selected` of them."""
        common = self.alike * selected
        rest, own = things - common, selected - common
        return common + (rest * (1 - (1 - own / rest) ** self.workers) if rest > 0 else 0.0)


@dataclass(frozen=True, slots=True)
class Stage:
    """Rounds one after the other.

    `sent` are bytes, the mean over the ranks; `messages` and `critical` those of the longest path.
    """

    rounds: float
    messages: float
    sent: float
    critical: float
    ring: bool = False  # an allreduce of the backend's

    @property
    def framed(self) -> float:
        """Bytes on the sockets, with what Gloo writes for each message.

        A ring's round takes two, unless there is but one number for a rank. Where a rank is not on
        the whole path, as in a tree, it has as many of the messages as of the bytes.
        """
        cut = self.ring and self.sent > LENGTH * self.messages
        own = self.messages * self.sent / self.critical if self.critical else 0.0
        return self.sent + FRAME * own * (SEGMENTS if cut else 1)

    def times(self, factor: float) -> "Stage":
        """The same, so many times per step."""
        once = (self.rounds, self.messages, self.sent, self.critical)
        rounds, messages, sent, critical = (factor * number for number in once)
        return Stage(rounds, messages, sent, critical, self.ring)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A whole exchange, and how many entries a rank encodes and decodes in it."""

    stages: tuple[Stage, ...]
    encoded: float = 0.0
    decoded: float = 0.0

    @property
    def sent(self) -> float:
        """Bytes that a rank sends, the mean over the ranks."""
        return sum(stage.sent for stage in self.stages)

    @property
    def framed(self) -> float:
        """Bytes on a rank's sockets over Gloo, frames included; about the mean over the ranks."""
        return sum(stage.framed for stage in self.stages)

    def written(self, backend: str) -> float:
        """Bytes on a rank's sockets; around NCCL's messages there is next to nothing."""
        return self.framed if backend == "gloo" else self.sent

    def seconds(self, network: Network) -> float:
        """On the wire, from the first byte to the last, on the longest path."""
        return sum(
            (network.ring if stage.ring and network.ring else network.link).seconds(
                stage.rounds, stage.messages, stage.critical
            )
            for stage in self.stages
        )


def allreduce(workers: int, size: float) -> Stage:
    """The backend's ring over so many bytes."""
    share = ring_bytes(size, workers)
    turns = 2 * (workers - 1) if size else 0
    return Stage(turns, turns, share, share, ring=True)


def gather_numbers(workers: int, numbers: int) -> Stage:
    """`all_gather_meta` of a few integers, from each to each."""
    sent = (workers - 1) * numbers * LENGTH
    return Stage(1, workers - 1, sent, sent)


def end_of_step(workers: int) -> Stage:
    """Each step ends by asking for NaN."""
    return gather_numbers(workers, 2)


def to_all(workers: int, wire: float) -> Stage:
    """A payload of such a size, which only the sender knows, to each of the others."""
    peers, sent = workers - 1, (workers - 1) * (LENGTH + wire)
    return Stage(rounds(wire), rounds(wire) * peers, sent, sent)


def equal_to_all(workers: int, wire: float, backend: str = "gloo") -> Stage:
    """A payload of a size that all know to each of the others; NCCL's go round a ring."""
    peers, ring = workers - 1, backend == "nccl"
    return Stage(peers if ring else 1, peers, peers * wire, peers * wire, ring)


def equal_to_each(workers: int, wire: float) -> Stage:
    """Another payload of a size that all know to each of the others."""
    return equal_to_all(workers, wire)


def inside_nodes(load: Load, node_size: int) -> Pattern:
    """What `comm.nodes` adds to the leaders' exchange: a sum and a broadcast inside each node.

    Both in the accumulator's 4 bytes per element.
    """
    size, hops = 4 * load.n, (node_size - 1).bit_length()
    hand_out = Stage(hops, hops, (node_size - 1) / node_size * size, size)
    return Pattern((allreduce(node_size, size), hand_out))


def gather(load: Load, wire: float) -> Stage:
    """A payload from each to all."""
    if load.backend == "nccl":
        return equal_to_all(load.workers, wire, load.backend)
    return to_all(load.workers, wire)


def by_owners(load: Load, part: float, total: float) -> tuple[Stage, ...]:
    """Parts to the owners of their regions, and the sums from them."""
    if load.backend == "nccl":
        return equal_to_each(load.workers, part), gather(load, total)
    return to_all(load.workers, part), to_all(load.workers, total)


def survivors(density: float | None, load: Load) -> float:
    """How many entries a collective with this density keeps of the sum; None: as many as selected.

    While a tree's partial sums grow to that they are taken to be as long as the result.
    """
    if density is None:
        return load.k
    return min(target_count(load.n, density, None), load.union(load.n, load.k))
