"""What cannot be measured here, found out before anything is started."""

from collections.abc import Sequence

import torch

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


def refuse_device(device: str) -> None:
    """A GPU where there is none."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ThinwireError("there is no CUDA device here: take --device cpu")


def refuse_memory(needed_gib: float, free_gib: float | None, what: str) -> None:
    """More than is free; None where that is not known."""
    if free_gib is not None and needed_gib > free_gib:
        raise ThinwireError(
            f"{what} may need {needed_gib:.1f} GiB, and {free_gib:.1f} are free: take fewer, or "
            "something smaller"
        )


def refuse_workers_in_memory(workers: int, interpreter_gib: float, floats: int, what: str) -> None:
    """More workers than there is memory for, where each holds so many floats."""
    needed_gib = workers * (interpreter_gib + 4 * floats / 2**30)
    refuse_memory(needed_gib, available_memory_gib(), f"{workers} workers with {what}")
