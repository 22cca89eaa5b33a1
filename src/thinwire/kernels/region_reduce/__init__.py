"""The sum of several sparse parts as one sparse part, and what two have in common.

`reference.py` says what is computed.
"""

from collections.abc import Sequence

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.region_reduce import reference
from thinwire.types import Sparse


def region_reduce(parts: Sequence[Sparse], numel: int) -> Sparse:
    """Add up parts of one region of `numel` elements: unique indices, ascending.

    Indices are unique within each part and below `numel`. Values are added in the order of the
    parts, so the sum of some parts can go on as the first of the next: the bits are the same.
    At least one part must be given; it may be empty.
    """
    return implementation(reference.region_reduce, parts[0].indices.device)(parts, numel)


def common(indices: Tensor, others: Tensor) -> Tensor:
    """Positions of those `indices` that are also among the `others`; all of them ascending."""
    return implementation(reference.common, indices.device)(indices, others)
