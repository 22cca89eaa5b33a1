"""What a unit cost: bytes, counts, and seconds by phase; shared out to its tensors."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from thinwire.comm import Traffic
from thinwire.comm.messages import ring_bytes
from thinwire.types import Selection, Sparse
from thinwire.units.clock import StepClock

FIRST = 2  # steps of a unit that compile, and allocate what is kept


@dataclass(slots=True)
class Cost:
    """Sums over all steps so far, on this rank."""

    steps: int = 0
    numel: int = 0
    selected: float = 0
    bytes_sent: float = 0
    bytes_received: float = 0
    dense_bytes: float = 0  # what a dense allreduce of the same gradients would have sent
    seconds: dict[str, float] = field(default_factory=dict)  # but for the first steps
    first_steps: int = 0  # those in which something was compiled or allocated
    first_seconds: dict[str, float] = field(default_factory=dict)

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
            self.first_steps + later.first_steps,
            _added(self.first_seconds, later.first_seconds),
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
            "first_steps": {"steps": self.first_steps, "seconds": dict(self.first_seconds)},
        }


def total_cost(costs: Iterable[Cost]) -> Cost:
    """The sum over tensors; its steps are those of the tensor that was stepped most."""
    total = Cost()
    for cost in costs:
        steps, numel = max(total.steps, cost.steps), total.numel + cost.numel
        first_steps = max(total.first_steps, cost.first_steps)
        total = total + cost
        total.steps, total.numel, total.first_steps = steps, numel, first_steps
    return total


class Meter:
    """Counts for one unit. On a device it launches next to nothing, and waits for nothing.

    There, phases are timed and selections counted by tensor in some steps only (`StepClock`),
    which stand for the others.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        clock: StepClock | None = None,
    ) -> None:
        self.sizes, self.device, self.weight = sizes, device, max(1, sum(sizes))
        self.clock = StepClock() if clock is None else clock
        self.total = Cost(numel=sum(sizes))
        self._gradient_bytes = sum(sizes) * dtype.itemsize
        self._unsettled, self._timed = FIRST, 0
        self._whole = 0  # steps in which all was selected
        self._sent = 0  # elements that were selected in the others
        self._ends: dict[int, Tensor] = {}  # of the tensors, in rows of some width
        self._upto: Tensor | None = None  # elements up to each tensor's end, in the steps counted

    @property
    def fresh(self) -> bool:
        """Whether this is one of the first steps, which compile and allocate."""
        return self._unsettled > 0

    def restart(self) -> None:
        """The next steps are first ones again, as by another pipeline."""
        self._unsettled = FIRST

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Time what happens inside, and show it to PyTorch's profiler as `thinwire::name`."""
        return self.clock.phase(self, name)

    def count(self, chosen: Selection | None, moved: Traffic, ranks: int) -> None:
        """Enter a finished step: what was chosen, the bytes that moved, and over how many ranks."""
        self.total.steps += 1
        self._unsettled = max(0, self._unsettled - 1)
        self.total.bytes_sent += moved.sent
        self.total.bytes_received += moved.received
        self.total.dense_bytes += ring_bytes(self._gradient_bytes, ranks)
        if isinstance(chosen, Sparse):
            self._sent += chosen.values.numel()
            if len(self.sizes) > 1 and self.clock.times(self.device):
                self._count_by_tensor(chosen)
        elif chosen is not None:
            self._whole += 1

    def book(self, seconds: Mapping[str, float], apart: bool) -> None:
        """Enter the seconds of one step, by phase; those of a first step are kept apart."""
        if apart:
            self.total.first_steps += 1
            self.total.first_seconds = _added(self.total.first_seconds, seconds)
        else:
            self._timed += 1
            self.total.seconds = _added(self.total.seconds, seconds)

    def costs(self) -> list[Cost]:
        """The unit's costs by tensor.

        What each selected was counted. Bytes are the unit's, shared out by that; seconds and
        dense bytes by size. Waits for the device if it still works on one of the steps.
        """
        self.clock.settle(wait=True)
        selected, total = self._selected(), self.total
        factor = (total.steps - total.first_steps) / self._timed if self._timed else 1.0
        return [
            Cost(
                steps=total.steps,
                numel=size,
                selected=k,
                bytes_sent=total.bytes_sent * k_share,
                bytes_received=total.bytes_received * k_share,
                dense_bytes=total.dense_bytes * size_share,
                seconds={p: s * size_share * factor for p, s in total.seconds.items()},
                first_steps=total.first_steps,
                first_seconds={p: s * size_share for p, s in total.first_seconds.items()},
            )
            for size, k, k_share, size_share in zip(
                self.sizes, selected, _shares(selected), _shares(self.sizes), strict=True
            )
        ]

    def _selected(self) -> list[float]:
        """How many elements of each tensor, in all steps."""
        counted: Sequence[float] = self.sizes
        if self._upto is not None:
            if self._upto.is_cuda:
                torch.cuda.synchronize(self.device)  # it was counted on a stream of its own
            counted = self._upto.diff(prepend=self._upto.new_zeros(1)).tolist()
        factor = self._sent / (sum(counted) or 1)
        return [k * factor + self._whole * n for k, n in zip(counted, self.sizes, strict=True)]

    def _count_by_tensor(self, chosen: Sparse) -> None:
        width = chosen.width
        if width not in self._ends:
            ends = torch.tensor(self.sizes).cumsum(0)
            self._ends[width] = (-(-ends // max(1, width))).to(self.device)
        upto = torch.searchsorted(chosen.sorted().indices, self._ends[width])
        before = torch.zeros_like(upto) if self._upto is None else self._upto
        self._upto = before.add_(upto, alpha=width)


def _added(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {phase: a.get(phase, 0.0) + b.get(phase, 0.0) for phase in {**a, **b}}


def _shares(parts: Sequence[float]) -> list[float]:
    """Parts of one; equal ones if all are zero."""
    whole = sum(parts)
    return [part / whole if whole else 1 / len(parts) for part in parts]
