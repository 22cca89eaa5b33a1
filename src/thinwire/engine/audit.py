"""Whether the ranks still hold the same bits: looked at every so many steps."""

from collections.abc import Mapping

from torch import Tensor

from thinwire.comm import GroupCommunicator
from thinwire.engine.saved import content
from thinwire.errors import DisagreementError
from thinwire.settings import check_integer

NAMED = 5  # tensors in an error


class Audit:
    """Compares checksums of tensors, for one pass over them and 8 bytes each to every rank.

    0 never does. On a GPU it waits for the device.
    """

    def __init__(self, comm: GroupCommunicator, every: int) -> None:
        check_integer("audit", every, 0)
        self._comm, self._every, self._steps = comm, every, 0

    def is_due(self) -> bool:
        """Count a step, and say whether this is one to look at."""
        self._steps += 1
        return self._every > 0 and self._steps % self._every == 0

    def compare(self, what: str, tensors: Mapping[str, Tensor]) -> None:
        """Raise `DisagreementError` on all ranks if one of them holds other bits."""
        rows = self._comm.all_gather_meta([_content(tensor) for tensor in tensors.values()])
        alike: dict[tuple[int, ...], list[int]] = {}
        for rank, row in enumerate(rows):
            alike.setdefault(tuple(row), []).append(rank)
        if len(alike) == 1:
            return
        columns = zip(tensors, zip(*rows, strict=True), strict=True)
        differ = [name for name, column in columns if len(set(column)) > 1]
        more = f" and {len(differ) - NAMED} more" if len(differ) > NAMED else ""
        most, *others = sorted(alike.values(), key=len, reverse=True)
        raise DisagreementError(
            f"{what} differ after {self._steps} steps: "
            + " and ".join(f"rank {', '.join(map(str, ranks))}" for ranks in others)
            + f" came apart from rank {', '.join(map(str, most))} in {len(differ)} of "
            f"{len(tensors)} tensors ({', '.join(differ[:NAMED])}{more}): go on from a checkpoint"
        )


def _content(tensor: Tensor) -> int:
    if not tensor.is_sparse:
        return content(tensor)
    coo = tensor.coalesce()
    return content(coo.indices()) ^ content(coo.values())
