"""What a compaction gives."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Found:
    """What passed. Of `indices` (int64, ascending) and `values` the first min(count, capacity)
    entries are set; the rest is undefined.

    `count` (0-D int64, on the device) counts all that passed, also those beyond the capacity:
    they are the ones of highest index, and are not listed.
    """

    indices: Tensor
    values: Tensor
    count: Tensor

    @property
    def capacity(self) -> int:
        """How many can be listed."""
        return self.indices.numel()

    def trim(self) -> tuple[Tensor, Tensor]:
        """What is set of both. The one place where the host waits for the device."""
        listed = min(int(self.count), self.capacity)
        return self.indices[:listed], self.values[:listed]
