"""The sum of several sparse parts as one sparse part, and what two have in common.

`reference.py` says what is computed.
"""

from collections.abc import Sequence

from torch import Tensor

from thinwire.kernels import Implementation, implementation
from thinwire.types import Sparse

BUILT: tuple[Implementation, ...] = ("reference", "numba", "triton")

_WORDS_FOR_FREE = 1 << 16  # a bitmap of 512 KiB stays in the cache, however few indices there are
_WORDS_AN_INDEX = 16  # beyond so many words to clear and scan for each index, sorting is faster


def region_reduce(parts: Sequence[Sparse], numel: int) -> Sparse:
    """Add up parts of one region of `numel` elements: unique indices, ascending.

    Indices are unique within each part and below `numel`. Values are added in the order of the
    parts, so the sum of some parts can go on as the first of the next: the bits are the same.
    At least one part must be given; it may be empty.
    """
    count = sum(part.count for part in parts)
    words = numel // 64 + 1
    bitmap_pays = words <= max(_WORDS_FOR_FREE, _WORDS_AN_INDEX * count)
    built = BUILT if bitmap_pays else ("reference", "triton")
    total: Sparse = implementation(__name__, parts[0].indices.device, built).region_reduce(
        parts, numel
    )
    return total


def common(indices: Tensor, others: Tensor) -> Tensor:
    """Positions of those `indices` that are also among the `others`; all of them ascending."""
    built: tuple[Implementation, ...] = ("reference", "numba")
    found: Tensor = implementation(__name__, indices.device, built).common(indices, others)
    return found
