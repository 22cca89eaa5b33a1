"""What a sample can say of the k-th magnitude: the same plan for every device."""

import math
from collections.abc import Sequence

from torch import Tensor

_NARROW_FROM = 1 << 14  # below this many elements a sample costs as much as it saves
_LEAST_SAMPLE, _LONGEST_STRIDE = 1 << 12, 257
_ROOM = 4  # candidates for each of the k: a guess that lets more through was a bad one
_SPARE_ROOM = 1 << 12  # and so many more: by chance a sample of few lets them through
_LEAST_SPARE_ROOM = 64  # for each of many groups


def sample(x: Tensor, k: int) -> tuple[Tensor, int] | None:
    """Some elements, and the rank there of a magnitude that somewhat more than k of all reach.

    None where looking at all elements is no dearer. The stride is odd, because widths of layers
    are even: one that divides the width would look at the same few columns of every row.
    """
    numel = x.numel()
    if numel < _NARROW_FROM or k > numel // 8:
        return None
    stride = min(_LONGEST_STRIDE, numel // _LEAST_SAMPLE) | 1
    expected = k / stride
    # Four standard deviations of the sample's count: too few candidates are rare, and cost passes.
    return x[::stride].contiguous(), math.ceil(expected + 4 * math.sqrt(expected) + 4)


def room(numel: int, k: int) -> int:
    """For how many candidates to have room."""
    return rooms([(numel, k)])[0]


def rooms(of: Sequence[tuple[int, int]]) -> list[int]:
    """For how many candidates of each of several groups, given their sizes and k."""
    spare = max(_SPARE_ROOM // max(1, len(of)), _LEAST_SPARE_ROOM)
    return [min(_ROOM * k + spare, numel) for numel, k in of]
