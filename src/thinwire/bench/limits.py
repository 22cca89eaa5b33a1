"""What cannot be measured here, found out before anything is started."""

from collections.abc import Sequence

from thinwire.errors import ThinwireError
from thinwire.lab import LabError
from thinwire.lab.links import bits_per_second
from thinwire.lab.namespaces import refuse_without_means
from thinwire.machine import available_memory_gib


def refuse_links(workers: Sequence[int], nodes: int | None, rates: Sequence[str | None]) -> None:
    """Workers that do not fill their nodes, rates that are none, links that need root."""
    for count in workers:
        if count < 1:
            raise ThinwireError(f"workers={count} must be at least 1")
        if nodes and count % nodes:
            raise ThinwireError(f"{count} workers cannot be shared out to {nodes} nodes")
    for rate in filter(None, rates):
        bits_per_second(rate)
        try:
            refuse_without_means()
        except LabError as error:
            raise LabError(f"{error}; `--rates none` measures over unshaped loopback") from None


def refuse_memory(workers: int, gib_per_rank: float, what: str) -> None:
    """More than this machine has free."""
    needed, available = workers * gib_per_rank, available_memory_gib()
    if available is not None and needed > available:
        raise ThinwireError(
            f"{workers} workers with {what} may need {needed:.0f} GiB, and {available:.0f} are "
            "free: take fewer, or something smaller"
        )
