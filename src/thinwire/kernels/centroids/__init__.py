"""Values as two bits each: which of four bins of their group they are in, and the bins' means.

A group is `group` values one after the other, the last one perhaps fewer. Its bins end at -σ, 0
and σ, with σ the root of its mean square; `reference.py` says what is computed. All implementations
give the same bits, on any number of threads.
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.centroids import reference

BINS = 4
BITS = 2


def groups_in(count: int, group: int) -> int:
    """How many groups so many values make."""
    return -(-count // group)


def to_centroids(values: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """The means of each row's groups, (rows, groups, 4) in its dtype, and the bins as int32.

    An empty bin has the mean zero; a group with a value that is not finite has NaN for all four.
    """
    return implementation(reference.to_centroids, values.device)(values.contiguous(), group)


def from_centroids(centroids: Tensor, codes: Tensor, group: int) -> Tensor:
    """The mean that each row's codes stand for."""
    look_up = implementation(reference.from_centroids, codes.device)
    return look_up(centroids.contiguous(), codes.contiguous(), group)
