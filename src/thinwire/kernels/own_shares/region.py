"""What a rank owns."""

from typing import NamedTuple

from torch import Tensor


class Region(NamedTuple):
    """The sums that a rank kept: `owner` is its number, and that of its row."""

    owner: int
    indices: Tensor
    sums: Tensor
    arrived: Tensor  # the sums after the wire
