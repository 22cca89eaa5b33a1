"""What a unit cost: bytes, counts, and seconds by phase; shared out to its tensors."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.profiler import record_function

from thinwire.comm import Traffic
from thinwire.comm.messages import ring_bytes
from thinwire.types import Selection, Sparse


@dataclass(slots=True)
class Cost:
    """Sums over all steps so far, on this rank."""

    steps: int = 0
    numel: int = 0
    selected: float = 0
    bytes_sent: float = 0
    bytes_received: float = 0
    dense_bytes: float = 0  # what a dense allreduce of the same gradients would have sent
    seconds: dict[str, float] = field(default_factory=dict)

    def __add__(self, later: "Cost") -> "Cost":
        """The cost of the same tensor before and after its unit changed."""
        return Cost(
            self.steps + later.steps,
            later.numel,
            self.selected + later.selected,
            self.bytes_sent + later.bytes_sent,
            self.bytes_received + later.bytes_received,
            self.dense_bytes + later.dense_bytes,
            _added(self.seconds, later.seconds),
        )

    def row(self) -> dict[str, Any]:
        """As `stats()` shows it; k is the mean number of elements sent a step."""
        k = self.selected / self.steps if self.steps else 0.0
        return {
            "steps": self.steps,
            "numel": self.numel,
            "k": k,
            "density": k / self.numel if self.numel else 0.0,
            "bytes_sent": round(self.bytes_sent),
            "bytes_received": round(self.bytes_received),
            "dense_bytes": round(self.dense_bytes),
            "seconds": dict(self.seconds),
        }


def total_cost(costs: Iterable[Cost]) -> Cost:
    """The sum over tensors; its steps are those of the tensor that was stepped most."""
    total = Cost()
    for cost in costs:
        steps, numel = max(total.steps, cost.steps), total.numel + cost.numel
        total = total + cost
        total.steps, total.numel = steps, numel
    return total


class Meter:
    """Counts for one unit. On CUDA, phases are timed by events, without any synchronisation.

    Where the device waits for the host, as it does after the check for NaN, the wait counts.
    """

    def __init__(self, sizes: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        self.sizes = sizes
        self._gradient_bytes = sum(sizes) * dtype.itemsize
        self.total = Cost(numel=sum(sizes))
        self._selected = torch.zeros(len(sizes), dtype=torch.int64, device=device)
        self._ends = torch.tensor(sizes, device=device).cumsum(0)
        self._on_gpu = device.type == "cuda"
        self._events: deque[tuple[str, torch.cuda.Event, torch.cuda.Event]] = deque()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside, and show it to PyTorch's profiler as `thinwire::name`."""
        with record_function(f"thinwire::{name}"):
            if self._on_gpu:
                start, end = torch.cuda.Event(True), torch.cuda.Event(True)
                start.record()
                yield
                end.record()
                self._events.append((name, start, end))
            else:
                begin = time.perf_counter()
                yield
                self.spend(name, time.perf_counter() - begin)

    def count(self, chosen: Selection | None, moved: Traffic, ranks: int) -> None:
        """Enter a finished step: what was chosen, the bytes that moved, and over how many ranks."""
        self.total.steps += 1
        self.total.bytes_sent += moved.sent
        self.total.bytes_received += moved.received
        self.total.dense_bytes += ring_bytes(self._gradient_bytes, ranks)
        self._read_events(wait=False)  # or they would pile up until someone asks
        if chosen is not None:
            self._selected += self._selected_by_tensor(chosen)

    def spent(self) -> float:
        """Seconds in all phases so far. Waits for the GPU if it still works on one of them."""
        self._read_events(wait=True)
        return sum(self.total.seconds.values())

    def costs(self) -> list[Cost]:
        """The unit's costs by tensor.

        What each selected was counted. Bytes are the unit's, shared out by that; seconds and
        dense bytes by size. Waits for the GPU if it still works on one of the phases.
        """
        self.spent()
        selected = self._selected.tolist()
        by_count = _shares(selected)
        by_size = _shares(self.sizes)
        return [
            Cost(
                steps=self.total.steps,
                numel=size,
                selected=k,
                bytes_sent=self.total.bytes_sent * k_share,
                bytes_received=self.total.bytes_received * k_share,
                dense_bytes=self.total.dense_bytes * size_share,
                seconds={p: s * size_share for p, s in self.total.seconds.items()},
            )
            for size, k, k_share, size_share in zip(
                self.sizes, selected, by_count, by_size, strict=True
            )
        ]

    def _read_events(self, wait: bool) -> None:
        """Enter the phases that are over; or all, when they are."""
        while self._events and (wait or self._events[0][2].query()):
            name, start, end = self._events.popleft()
            end.synchronize()
            self.spend(name, start.elapsed_time(end) / 1000)

    def spend(self, phase: str, seconds: float) -> None:
        """Enter time that was measured elsewhere."""
        self.total.seconds[phase] = self.total.seconds.get(phase, 0.0) + seconds

    def _selected_by_tensor(self, chosen: Selection) -> Tensor | int:
        if not isinstance(chosen, Sparse):
            return torch.tensor(self.sizes, device=self._selected.device)
        if len(self.sizes) == 1:
            return chosen.values.numel()
        upto = torch.searchsorted(chosen.sorted().indices, self._ends)
        return upto.diff(prepend=upto.new_zeros(1))


def _added(a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
    return {phase: a.get(phase, 0.0) + b.get(phase, 0.0) for phase in a | b}


def _shares(parts: Sequence[float]) -> list[float]:
    """Parts of one; equal ones if all are zero."""
    whole = sum(parts)
    return [part / whole if whole else 1 / len(parts) for part in parts]
